# Kafka clients in Python: the example's consumers and producer, and the tests of compose.test.yaml.
ARG BASE=python:3.13-slim

FROM ${BASE} AS builder
ARG PACKAGES=kafka-python
WORKDIR /build
# The versions and hashes are those of the project's lock. docker/certificates.pem may be missing, as in docker/Dockerfile.
COPY requirements/development.txt docker/certificates.pe[m] ./
RUN if [ -e certificates.pem ]; then export PIP_CERT="$PWD/certificates.pem"; fi \
 && for name in $PACKAGES; do sed -n "/^$name==/,/[^\\\\]\$/p" development.txt; done >locked.txt \
 && python3 -m venv /opt/clients \
 && /opt/clients/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: --no-deps \
        --requirement locked.txt

FROM ${BASE}
COPY --from=builder /opt/clients /opt/clients
WORKDIR /clients
COPY docker/consumer.py docker/producer.py docker/tests ./
ENV PATH=/opt/clients/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
