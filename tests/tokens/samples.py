"""Small texts of our own, one for each kind that counters get wrong in different ways."""

import base64
import json

ENGLISH = (
    "The build failed again last night, so we looked at the log together. It turned out that the cache directory was "
    "owned by another user and the installer could not write its lock file. Please don't delete anything yet: first "
    "make a copy, then change the owner, and let me know whether the third test still hangs.\n"
) * 8
CHINESE = (
    "昨天晚上的构建又失败了，所以我们一起看了日志。原来缓存目录属于另一个用户，安装程序无法写入锁文件。"
    "请先不要删除任何东西：先备份，再修改所有者，然后告诉我第三个测试是否仍然卡住。预算是三千五百元，下周五之前完成。\n"
) * 8
JSON = json.dumps(
    [
        {"id": 48210 + 37 * n, "sku": f"AX-{n:04d}-KL", "price": 12.5 + n, "tags": ["blue", "sale"], "stock": None}
        for n in range(40)
    ]
)
CODE = (
    "def read_lines(path: str, limit: int = 200) -> list[str]:\n"
    "    with open(path, encoding='utf-8') as handle:\n"
    "        return [line.rstrip('\\n') for _, line in zip(range(limit), handle)]\n\n\n"
    "class Reader(Base):\n    count = 0\n\n"
    "    def __init__(self, name):\n        self.name = name or f'r{self.count}'\n\n"
) * 8
LOG = "".join(
    f"2026-11-0{n % 9 + 1}T12:{n:02d}:03.{n * 7919 % 1000:03d}Z ERROR worker[{n * 31 % 977}] job {n * 104729:x} lost\n"
    for n in range(60)
)
BASE64 = base64.b64encode(bytes((n * n + 7 * n) % 251 for n in range(1500))).decode()

KINDS = {"English": ENGLISH, "Chinese": CHINESE, "JSON": JSON, "code": CODE, "log": LOG, "base64": BASE64}
