# The gateway and its page as an image. Everything is installed from the locks, by hash; nothing is resolved.
# build:  docker build -t refold .
# run:    docker compose up   (compose.yaml adds PostgreSQL, secrets and volumes; docs/how-to/deploy.md explains it)
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/refold
COPY requirements/all.txt requirements/build.txt requirements/
RUN /opt/refold/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes -r requirements/all.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/refold/bin/pip install --no-cache-dir --no-deps --no-build-isolation . && /opt/refold/bin/python -m compileall -q /opt/refold/lib

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home --home-dir /data refold && chown -R refold:refold /data
COPY --from=build /opt/refold /opt/refold
COPY --chmod=755 deploy/start.sh /usr/local/bin/start-refold
ENV PATH=/opt/refold/bin:$PATH HOME=/data PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 7788
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7788/readyz', timeout=4)"]
ENTRYPOINT ["start-refold"]
CMD ["serve", "--host", "0.0.0.0", "--port", "7788"]
