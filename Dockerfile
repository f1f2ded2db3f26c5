# Images of infersweep: `server` (ONNX Runtime server and FastAPI baseline), `loadgen` (Locust and
# `infersweep load`) and `models` (the server with the model repository in it, for Kubernetes).
# The context is the repository. docs/containers.md says how large they are and what can be chosen.
FROM python:3.11.15-slim-bookworm AS python
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/venv/bin:$PATH
WORKDIR /app

FROM python AS build
# `onnxruntime` serves on CPUs; `onnxruntime-gpu[cuda,cudnn]` brings CUDA's libraries with it. Both
# have the version that constraints.txt states for the second.
ARG ONNXRUNTIME=onnxruntime
COPY constraints.txt ./
COPY deploy/requirements requirements/
RUN python -m venv /venv \
    && sed -n 's/^onnxruntime-gpu==/onnxruntime==/p' constraints.txt > runtime.txt \
    && pip install --constraint constraints.txt --constraint runtime.txt "$ONNXRUNTIME"

FROM build AS build-server
# server, or torch for the PyTorch engines as well.
ARG REQUIREMENTS=server
RUN pip install --constraint constraints.txt --requirement "requirements/$REQUIREMENTS.txt"
COPY pyproject.toml README.md ./
COPY serving serving/
COPY loadtest loadtest/
# Editable, so that paths are those of a checkout. pyproject.toml asks for PyTorch and more, which
# servers do not import: their packages are the ones above.
RUN pip install --no-deps --editable .

FROM build AS build-loadgen
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --constraint constraints.txt --requirement requirements/loadgen.txt
COPY pyproject.toml README.md ./
COPY serving serving/
COPY loadtest loadtest/
RUN pip install --no-deps --editable .
# The native load engine. Its name is the checksum of its source, so the loader finds it here.
ENV INFERSWEEP_CACHE=/opt/infersweep
RUN python -c "from loadtest.engine.build import build; print(build())"

FROM python AS server
COPY --from=build-server /venv /venv
COPY serving serving/
COPY loadtest loadtest/
COPY deploy/health.py deploy/place_models.py deploy/
# A volume that is new takes over the owner of the folder it covers.
RUN install --directory --owner=1000 --group=1000 model_repository /targets
ENV INFERSWEEP_CACHE=/tmp/infersweep
USER 1000:1000
EXPOSE 8000
HEALTHCHECK --interval=60s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-I", "-S", "deploy/health.py", "answers", "http://127.0.0.1:8000/v2/health/ready"]
CMD ["python", "-m", "serving.backends.onnxruntime", "--repository=model_repository", "--model=image_classifier", "--host=0.0.0.0"]

FROM server AS models
COPY model_repository model_repository/
HEALTHCHECK NONE

FROM python AS loadgen
COPY --from=build-loadgen /venv /venv
COPY --from=build-loadgen /opt/infersweep /opt/infersweep
COPY serving serving/
COPY loadtest loadtest/
COPY deploy/health.py deploy/with_engine.sh deploy/
ENV INFERSWEEP_CACHE=/tmp/infersweep
USER 1000:1000
EXPOSE 8089 5557
HEALTHCHECK --interval=60s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-I", "-S", "deploy/health.py", "answers", "http://127.0.0.1:8089/"]
ENTRYPOINT ["/app/deploy/with_engine.sh"]
CMD ["locust", "-f", "loadtest/locustfile.py"]
