# One image for all three services and the command: `docker run IMAGE edge`, `... router`, `... billing`, `... accounts list`.
FROM python:3.11-slim

WORKDIR /app
COPY requirements/build.txt requirements/run.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY gen gen
COPY services services
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --system --uid 10001 speedinfer \
    && install -d -o speedinfer -g speedinfer -m 700 /var/lib/speedinfer
USER speedinfer
ENV SPEEDINFER_DATA_DIR=/var/lib/speedinfer
VOLUME /var/lib/speedinfer

ENTRYPOINT ["speedinfer"]
CMD ["--help"]
