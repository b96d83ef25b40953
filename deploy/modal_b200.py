"""PhoneLLM Alpha 1 (BF16) on one B200 at Modal: profile b200-bf16, scaled to zero when nobody calls.

    pip install modal==1.6.4 && modal setup
    modal run deploy/modal_b200.py::fetch      # 63.2 GB into a volume, once; needs no GPU
    modal deploy deploy/modal_b200.py          # prints the address

Requests need a proxy token (made in Modal's dashboard), sent as the headers Modal-Key and Modal-Secret; Modal
checks them before the server sees anything. The server itself asks for no key.

What it costs: Modal's list price of a B200 was 6.2496 US dollars an hour in August 2026 (PhoneLLM's card),
1.5 times that in a broad region of your choice and 1.75 times in a narrow one (Modal's guide to regions). You
pay from a container's start until it has been idle for SCALEDOWN_SECONDS. With no container running a request
is answered 503 until one is up, which takes minutes: for callers keep one running (min_containers=1), and pay
for its idle hours.
"""

import subprocess

import modal

REPOSITORY = "pipecat-ai/phonellm-alpha-1"
REVISION = "8e76aaa6e8ce4765ac943ba3fb339494d4d48dca"
FOLDER = "/models/phonellm-alpha-1"
PORT = 8000
SCALEDOWN_SECONDS = 300
MINUTES = 60

FETCH = ["hf", "download", REPOSITORY, "--revision", REVISION, "--local-dir", FOLDER]
COMMAND = [
    *("vllm", "serve", FOLDER),
    *("--served-model-name", "phonellm-alpha-1"),
    *("--host", "0.0.0.0"),
    *("--port", str(PORT)),
    "--trust-remote-code",
    "--async-scheduling",
    *("--gpu-memory-utilization", "0.9"),
    *("--max-model-len", "32768"),
    *("--max-num-seqs", "128"),
    *("--mamba-ssm-cache-dtype", "float32"),
    "--enable-prefix-caching",
    *("--mamba-cache-mode", "align"),
    *("--default-chat-template-kwargs", '{"enable_thinking":false}'),
    *("--override-generation-config", '{"temperature":0}'),
    *("--reasoning-parser-plugin", f"{FOLDER}/nano_v3_reasoning_parser.py"),
    *("--reasoning-parser", "nano_v3"),
    "--enable-auto-tool-choice",
    *("--tool-call-parser", "qwen3_coder"),
    "--enable-prompt-tokens-details",
]

image = (
    modal.Image.from_registry("nvidia/cuda:13.0.2-devel-ubuntu22.04", add_python="3.12")
    .entrypoint([])
    .uv_pip_install("vllm==0.27.1")
    .env({"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"})
)
models = modal.Volume.from_name("phonellm-models", create_if_missing=True)
kernels = modal.Volume.from_name("phonellm-kernels", create_if_missing=True)
app = modal.App("phonellm-b200")


@app.function(image=image, volumes={"/models": models}, timeout=60 * MINUTES)
def fetch() -> None:
    """Fetch the weights into the volume; goes on where it was broken off."""
    subprocess.run(FETCH, check=True)
    models.commit()


@app.server(
    image=image,
    gpu="B200",
    volumes={"/models": models, "/cache": kernels},
    env={"XDG_CACHE_HOME": "/cache", "TRITON_CACHE_DIR": "/cache/triton", "HF_HUB_OFFLINE": "1"},
    port=PORT,
    startup_timeout=20 * MINUTES,
    scaledown_window=SCALEDOWN_SECONDS,
    max_containers=1,  # the most that can be running, and so the most that can cost
    exit_grace_period=10,
)
class PhoneLLM:
    """One vLLM server in one container."""

    @modal.enter()
    def start(self) -> None:
        """Start the server; Modal waits until the port answers."""
        self.server = subprocess.Popen(COMMAND)

    @modal.exit()
    def stop(self) -> None:
        """End it when Modal takes the container away."""
        self.server.terminate()
        self.server.wait()
