# The servers of infersweep. The build context is the repository; models are mounted, not copied.
FROM python:3.11-slim AS build
WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./
COPY serving serving
COPY loadtest loadtest
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.11-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH
USER 1000:1000
