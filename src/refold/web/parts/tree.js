// Draws trees of nodes as elements. The second lock on the door: whatever the server sends, only these tags and
// attributes reach the document, and every text becomes a text node.
const TAGS = new Set(
  "p h1 h2 h3 h4 h5 h6 ul ol li em strong s blockquote table thead tbody tr th td pre code br hr a span div".split(" "),
);
const CLASSES = new Set(["picture"]);

function keep(tag, given) {
  const kept = {};
  if (!given) return kept;
  if (tag === "a" && /^(https?:|mailto:)/i.test(given.href ?? "")) {
    kept.href = given.href;
    kept.target = "_blank";
    kept.rel = "noopener noreferrer nofollow";
  }
  if (tag === "ol" && /^\d{1,9}$/.test(given.start ?? "")) kept.start = given.start;
  if (CLASSES.has(given.class)) kept.class = given.class;
  return kept;
}

export function draw(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return node;
    const [tag, given, children] = node;
    return TAGS.has(tag) ? Vue.h(tag, keep(tag, given), draw(children)) : draw(children);
  });
}
