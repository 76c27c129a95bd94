# The benchmark with its packages, on a CPU or a CUDA GPU:
#   docker build -t pfl-benchmark .
#   docker build -t pfl-benchmark --build-arg BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 .
#   docker run --rm -v "$PWD/results:/app/results" -v "$PWD/data:/data" pfl-benchmark --algo fedper --dataset digits
ARG BASE=ubuntu:24.04
FROM ${BASE}

# An index of PyTorch without CUDA (see pytorch.org) makes the image of a CPU several gigabytes smaller.
ARG TORCH_INDEX=
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV VIRTUAL_ENV=/venv PATH=/venv/bin:$PATH PFL_PYTHON=/venv/bin/python PFL_DATA_DIR=/data
RUN python3 -m venv /venv
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements.txt
COPY . .
VOLUME ["/app/results", "/data"]
ENTRYPOINT ["python", "-m", "benchmark"]
CMD ["--help"]
