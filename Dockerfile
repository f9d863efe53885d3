# The controller manager as an image: docker build -t cluster-controller-manager:0.1.0 .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY controller_manager controller_manager
COPY controllers controllers
COPY apiserver_stub apiserver_stub
RUN python -m venv /opt/manager \
 && /opt/manager/bin/pip install --no-cache-dir --disable-pip-version-check . \
 && /opt/manager/bin/python -m compileall -q /opt/manager

FROM python:3.12-slim
COPY --from=build /opt/manager /opt/manager
ENV PATH=/opt/manager/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10257
ENTRYPOINT ["cluster-controller-manager"]
