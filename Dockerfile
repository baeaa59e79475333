# firstfault in a container: one image for the sidecar, the node agent and the correlator, on x86-64 and arm64.
#
#     docker build -t firstfault .                                                        this machine's architecture
#     docker buildx build --platform linux/amd64,linux/arm64 -t registry.example.org/firstfault --push .
#
# Runs as uid 65532 with a read-only root file system. What it writes goes to /var/lib/firstfault (state) and /var/cache/firstfault
# (the compiled patterns, which belong to a CPU and are therefore made at the first start). docs/deploy.md has the rest.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never \
    UV_PROJECT_ENVIRONMENT=/opt/firstfault \
    UV_SYSTEM_CERTS=1
WORKDIR /src
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
COPY deploy/image/uv.txt ./
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet --no-cache-dir --no-deps --require-hashes -r uv.txt
# Every package with the hash in uv.lock; before the sources, so that a change of ours does not fetch them again.
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --quiet --locked --no-dev --all-extras --no-install-project
COPY . .
RUN /opt/uv/bin/uv sync --quiet --locked --no-dev --all-extras --no-editable \
    && python3 deploy/image/slim.py /opt/firstfault \
    && install -d -o 65532 -g 65532 /root-of-image/var/lib/firstfault /root-of-image/var/cache/firstfault \
    && install -d /root-of-image/opt && mv /opt/firstfault /root-of-image/opt/

FROM ${BASE}
LABEL org.opencontainers.image.title="firstfault" \
      org.opencontainers.image.description="Reads every rank's log of a distributed training job and names the rank that failed first." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /root-of-image /
ENV PATH=/opt/firstfault/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/firstfault \
    STATE_DIRECTORY=/var/lib/firstfault \
    XDG_CACHE_HOME=/var/cache
USER 65532:65532
WORKDIR /var/lib/firstfault
VOLUME ["/var/lib/firstfault", "/var/cache/firstfault"]
EXPOSE 9465
ENTRYPOINT ["firstfault"]
CMD ["run", "--listen", "0.0.0.0:9465", "--logs", "/logs/**/*"]
