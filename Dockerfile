# The images of Kordon and, as the stage `audit`, of its auditor. `make image` builds the first with Docker or buildah,
# `TARGET=audit deploy/build-image kordon-audit:latest` the second; docs/deployment.md tells how they are run.
#
# Any base with Debian's packages and Python 3.11 or newer will do: --build-arg BASE=debian:trixie-slim
ARG BASE=debian:bookworm-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

# --- base: the interpreter, and the authorities that `upstream.tls: {}` trusts --------------------------------------
FROM ${BASE} AS base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/*

# --- build: the locked dependencies, then Kordon's wheel, in a virtual environment ----------------------------------
FROM base AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
# For networks with an index or an authority of their own: the optional secrets `pip_conf` (a pip.conf) and `ca` (a
# PEM bundle) are there for these commands only and are not part of any layer.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements/ requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=ca \
    for secret in pip_conf=PIP_CONFIG_FILE ca=PIP_CERT; do \
      if [ -s "/run/secrets/${secret%=*}" ]; then export "${secret#*=}=/run/secrets/${secret%=*}"; fi; \
    done \
 && python3 -m venv --without-pip /opt/kordon \
 && pip --python /opt/kordon/bin/python install --require-hashes --only-binary :all: -r requirements/run.txt \
 && awk '/^(setuptools|wheel)==/ {on = 1} on; !/\\$/ {on = 0}' requirements/dev.txt > requirements/build.txt \
 && python3 -m venv --without-pip /opt/build \
 && pip --python /opt/build/bin/python install --no-compile --require-hashes --only-binary :all: \
      -r requirements/build.txt
# .dockerignore lets in nothing but what the wheel and the image are made of.
COPY . .
RUN pip --python /opt/build/bin/python wheel --no-deps --no-build-isolation --no-index --wheel-dir dist . \
 && pip --python /opt/kordon/bin/python install --no-deps --no-index dist/*.whl \
 && find /opt/kordon -name '*.pyi' -delete \
 && /opt/kordon/bin/kordon --version

# --- jars: what Spark lacks to read Kafka topics -------------------------------------------------------------------
FROM base AS jars
RUN apt-get update && apt-get install --yes --no-install-recommends maven
COPY deploy/spark-pom.xml deploy/jars.sha256 ./
# Java has authorities of its own, made of Debian's: those of the optional secret `ca` are put beside them, one a file.
RUN --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then \
      awk '/BEGIN CERT/ {n++} n {print > "/usr/local/share/ca-certificates/given-" n ".crt"}' /run/secrets/ca \
   && update-ca-certificates > /dev/null 2>&1; \
    fi \
 && mvn --batch-mode --quiet --file spark-pom.xml dependency:copy-dependencies -DoutputDirectory=/jars \
 && cd /jars && sha256sum *.jar > /found.sha256 \
 && { ! grep --invert-match --line-regexp --fixed-strings --file /jars.sha256 /found.sha256 \
   || { echo "these jars are not those of deploy/jars.sha256" >&2; exit 1; }; }

# --- build-audit: the auditor's own locked dependencies, in the place of the proxy's --------------------------------
FROM build AS build-audit
# PySpark comes as source only: it is put together here by the setuptools that is locked for Kordon itself.
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=ca \
    for secret in pip_conf=PIP_CONFIG_FILE ca=PIP_CERT; do \
      if [ -s "/run/secrets/${secret%=*}" ]; then export "${secret#*=}=/run/secrets/${secret%=*}"; fi; \
    done \
 && rm -rf /opt/kordon && python3 -m venv --without-pip /opt/kordon \
 && pip --python /opt/kordon/bin/python install --require-hashes --only-binary :all: -r requirements/build.txt \
 && pip --python /opt/kordon/bin/python install --require-hashes --only-binary :all: --no-binary pyspark \
      --no-build-isolation -r requirements/audit.txt \
 && pip --python /opt/kordon/bin/python install --no-deps --no-index dist/*.whl \
 && find /opt/kordon -name '*.pyi' -delete
COPY --from=jars /jars/ /jars/
RUN cp /jars/*.jar "$(/opt/kordon/bin/python -c 'import pyspark; print(*pyspark.__path__)')/jars"

# --- audit: the auditor's image --------------------------------------------------------------------------------------
FROM base AS jre
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/* \
# Hadoop's code inside Spark asks for the user's name and gives up where there is none.
 && echo 'kordon:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd \
 && install --directory --owner 65532 --group 65532 /var/lib/kordon

FROM jre AS audit
LABEL org.opencontainers.image.title="kordon-audit" \
      org.opencontainers.image.description="The auditor of Kordon, a Kafka wire-protocol proxy" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-audit /opt/kordon /opt/kordon
COPY --chmod=0755 deploy/image/healthcheck.py /usr/local/bin/kordon-healthcheck
# The health check asks where KORDON_ADMIN__ADDRESS says: the auditor's metrics, where --metrics-address puts them.
ENV PATH=/opt/kordon/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KORDON_ADMIN__ADDRESS=0.0.0.0:9404
USER 65532:65532
WORKDIR /
VOLUME /var/lib/kordon
EXPOSE 9404
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "/usr/local/bin/kordon-healthcheck", "/metrics"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["kordon"]
CMD ["audit", "--help"]

# --- the image ------------------------------------------------------------------------------------------------------
FROM base
LABEL org.opencontainers.image.title="kordon" \
      org.opencontainers.image.description="A Kafka wire-protocol proxy" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kordon /opt/kordon
COPY deploy/kordon.yaml /etc/kordon/kordon.yaml
COPY --chmod=0755 deploy/image/entrypoint.sh /usr/local/bin/kordon-entrypoint
COPY --chmod=0755 deploy/image/healthcheck.py /usr/local/bin/kordon-healthcheck
# Nothing is written to the file system, so the root may be read-only; several workers need a /tmp for a socket each.
ENV PATH=/opt/kordon/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KORDON_CONFIG=/etc/kordon/kordon.yaml \
    KORDON_ADMIN__ADDRESS=0.0.0.0:8080
USER 65532:65532
WORKDIR /
# Bootstrap, then a port per node id from 9093 up (9093 is node id 0); publish those of the node ids there are.
EXPOSE 9092 9093 9094 9095 9096 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python3", "/usr/local/bin/kordon-healthcheck", "/livez"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["kordon-entrypoint"]
