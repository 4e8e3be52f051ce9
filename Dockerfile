# Paceproxy in a container; docs/containers.md tells how it is used.
#
#   docker build -t paceproxy:0.1.0 .
#   docker run --rm --read-only --stop-timeout 40 -p 127.0.0.1:8080:8080 -v paceproxy:/data paceproxy:0.1.0 \
#       --allow 172.17.0.0/16

# The tag moves with Python's and Debian's security releases. For a build that can be repeated give a digest:
# --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
# The time of all files, and what makes pip write bytecode that does not depend on when it was written: the same
# sources make the same layer.
ARG SOURCE_DATE_EPOCH=1764547200
# Wheels only: what has none would run its own code here, and need a compiler.
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    PIP_ONLY_BINARY=:all: \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# First what rarely changes. An environment of its own can be copied whole; pip and the sources stay behind.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/paceproxy \
    && python -m pip --python /opt/paceproxy/bin/python install --require-hashes -r requirements.lock \
    && python -m pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md ./
COPY proxy_addon proxy_addon
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m pip --python /opt/paceproxy/bin/python install --no-deps --no-index /wheels/*.whl \
    && python -m pip --python /opt/paceproxy/bin/python check \
    && find /opt/paceproxy -exec touch --no-dereference --date=@"$SOURCE_DATE_EPOCH" {} +

FROM ${PYTHON_IMAGE}
ARG SOURCE_DATE_EPOCH=1764547200
# Neither pip, nor what would bring it back. The folder belongs to a fixed number, so that whoever mounts another in
# its place knows to whom that must belong; a user of that name is not needed.
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip \
    && rm -rf "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/ensurepip" \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data \
    && touch --date=@"$SOURCE_DATE_EPOCH" /data
# The folder above, since the one that is named would get the time of the build.
COPY --from=build /opt /opt

# Loopback inside a container is reachable from nowhere, so that the proxy listens on all interfaces. It then needs
# to be told whom to serve, and says so and ends with exit code 2 when it is not. No network is allowed here by
# default: behind Docker's NAT, strangers too can look as if they came from the bridge, and a published port would
# be an open proxy.
# The admin address stays on loopback, for the health check below. For a Prometheus outside the container:
# -e PACE_ADMIN=:9464. Set it so rather than by --admin: the health check reads the environment.
ENV PATH=/opt/paceproxy/bin:$PATH \
    HOME=/data \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PACE_LISTEN=:8080 \
    PACE_ADMIN=127.0.0.1:9464 \
    PACE_STORE=sqlite:////data/hosts.sqlite3 \
    PACE_CONFDIR=/data/ca

USER 10001:10001
# Also where Python puts temporary files when /tmp cannot be written to.
WORKDIR /data
# What must outlive the container: the hosts' rows, so that a restart goes on as slowly as before, and the CA, so
# that its clients' trust goes on. Nothing is written anywhere else.
VOLUME /data
EXPOSE 8080 9464

HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["paceproxy", "health"]

# Requests in hand may finish for 25 s (--drain) and what follows takes up to 6 s more, but Docker kills after 10 s:
# give it --stop-timeout 40 (in a compose file stop_grace_period: 40s).
STOPSIGNAL SIGTERM
ENTRYPOINT ["paceproxy"]

# Last, so that a new revision does not make the other layers anew.
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Paceproxy" \
    org.opencontainers.image.description="A forward HTTP proxy that paces outbound crawl traffic" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}"
