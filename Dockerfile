# One image for all three services and the command: `docker run IMAGE edge`, `... router`, `... billing`, `... accounts list`.
# Docker was not at hand where this was written, and it has not been built: tests/unit/test_deployment.py checks what it copies,
# and tests/sidecars/test_compose.py runs its commands as its user on a read-only root, as processes without Docker.
FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /app
COPY requirements/build.txt requirements/run.txt requirements/
RUN /app/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt \
    && /app/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY gen gen
COPY services services
COPY deploy/envoy deploy/envoy
RUN /app/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
COPY --from=build /app /app
# A new volume takes its owner from the folder that it covers. The sidecars of compose.yaml run as this user, too.
RUN useradd --system --uid 10001 --user-group speedinfer \
    && groupmod --gid 10001 speedinfer \
    && install -d -o speedinfer -g speedinfer -m 700 /var/lib/speedinfer /seals /certificates /envoy \
       /certificates/ca /certificates/edge /certificates/router /certificates/billing /certificates/operator \
       /certificates/finance /certificates/public /envoy/edge /envoy/router /envoy/billing
USER 10001:10001
ENV PATH=/app/bin:$PATH SPEEDINFER_DATA_DIR=/var/lib/speedinfer PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/speedinfer
VOLUME /var/lib/speedinfer

ENTRYPOINT ["speedinfer"]
CMD ["--help"]
