# Paceproxy in a container.
#
#   docker build -t paceproxy .
#   docker run --rm -p 127.0.0.1:8080:8080 -v paceproxy:/var/lib/paceproxy paceproxy --allow 172.17.0.0/16
#
# Stop it with `docker stop -t 30`: requests in hand may finish for 25 s (--drain), and Docker's own patience of
# 10 s is shorter.

FROM python:3.13-slim AS build
COPY . /src
# An environment of its own can be copied whole, so that pip's leftovers and the sources stay behind.
RUN python -m venv /opt/paceproxy \
    && /opt/paceproxy/bin/pip install --no-cache-dir --disable-pip-version-check /src

FROM python:3.13-slim
# A fixed number, so that whoever mounts a folder of the host knows to whom it must belong.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/paceproxy --shell /usr/sbin/nologin paceproxy \
    && install --directory --owner=paceproxy --group=paceproxy --mode=0700 /var/lib/paceproxy
COPY --from=build /opt/paceproxy /opt/paceproxy

# Loopback inside a container is reachable from nowhere, so that the proxy listens on all interfaces. It then needs
# to be told whom to serve, and says so and ends with exit code 2 when it is not. No network is allowed here by
# default: behind Docker's NAT, strangers too can look as if they came from the bridge, and a published port would
# be an open proxy.
# The admin address stays on loopback, for the health check below. For a Prometheus outside the container:
# -e PACE_ADMIN=0.0.0.0:9464. Set it so rather than by --admin: the health check reads the environment.
ENV PATH=/opt/paceproxy/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PACE_LISTEN=0.0.0.0:8080 \
    PACE_ADMIN=127.0.0.1:9464 \
    PACE_STORE=sqlite:////var/lib/paceproxy/hosts.sqlite3 \
    PACE_CONFDIR=/var/lib/paceproxy/ca

USER 10001:10001
WORKDIR /var/lib/paceproxy
# What must outlive the container: the hosts' rows, so that a restart goes on as slowly as before, and the CA, so
# that its clients' trust goes on.
VOLUME /var/lib/paceproxy
EXPOSE 8080 9464

# All interfaces are asked through loopback. Proxy variables of the environment must not lead the question elsewhere.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["python", "-c", "\
import os, sys, urllib.request as request\n\
admin = os.environ['PACE_ADMIN']\n\
if admin == 'off': sys.exit()\n\
host, _, port = admin.rpartition(':')\n\
host = {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host)\n\
request.build_opener(request.ProxyHandler({})).open(f'http://{host}:{port}/healthz', timeout=4)"]

ENTRYPOINT ["paceproxy"]
