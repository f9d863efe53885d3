# The controller manager as an image: docker build -t cluster-controller-manager:0.2.0 .
ARG PYTHON=python:3.12.14-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254

FROM ${PYTHON} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements requirements
RUN python -m venv /opt/manager \
 && /opt/manager/bin/pip install --require-hashes --requirement requirements/runtime.txt \
 && pip install --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY controller_manager controller_manager
COPY controllers controllers
COPY apiserver_stub apiserver_stub
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/manager/bin/pip install --no-deps --no-index /dist/*.whl \
 && /opt/manager/bin/python -m compileall -q /opt/manager

FROM ${PYTHON}
COPY --from=build /opt/manager /opt/manager
ENV PATH=/opt/manager/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10257
ENTRYPOINT ["cluster-controller-manager"]
