# Warpsmith in a container, without and with CUDA:
#   docker build --target cpu -t warpsmith .
#   docker build --target cuda -t warpsmith:cuda .
#   docker run --rm --gpus all -v "$PWD":/work warpsmith:cuda optimize softmax.py
# The sandbox of candidates uses namespaces, which need `--cap-add SYS_ADMIN` in a container; `warpsmith doctor` says which
# layers are there. PyTorch's page of installations names the package index of its builds without CUDA, which are far
# smaller: --build-arg PIP_OPTIONS='--index-url URL'. KubeRay asks with wget whether a node is alive, and Ray answers only
# with its extra `default`; its version is the one of examples/cluster/kuberay.yaml.

FROM python:3.12-slim-bookworm AS cpu
ARG PIP_OPTIONS=""
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ binutils wget \
    && rm -rf /var/lib/apt/lists/*
# hadolint ignore=SC2086
RUN pip install --no-cache-dir $PIP_OPTIONS torch==2.13.0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir '.[llm,ray,report]' 'ray[default]==2.60.0'
WORKDIR /work
ENTRYPOINT ["warpsmith"]
CMD ["doctor"]

FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS cuda
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-dev python3-venv wget \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/warpsmith
ENV PATH=/opt/warpsmith/bin:$PATH
RUN pip install --no-cache-dir torch==2.13.0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir '.[llm,ray,report]' 'ray[default]==2.60.0'
WORKDIR /work
ENTRYPOINT ["warpsmith"]
CMD ["doctor"]
