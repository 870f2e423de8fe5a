"""Installs winobench: the library, its launchers and their configs."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).resolve().parent


def read_clients() -> list[str]:
    """The official clients of hosted models, as the providers' modules state them."""
    modules = (ROOT / "winobench" / "responders" / "hosted" / "providers").glob("*.py")
    sources = "".join(path.read_text(encoding="utf-8") for path in modules)
    return sorted(set(re.findall(r'^    requirement = "([^"]+)"$', sources, re.MULTILINE)))


# Tests compare with it. It converts single files, and loads the models that torch runs.
DIFFUSERS = "diffusers>=0.42,<0.43"
# What runs diffusers' pipelines under JAX (winobench.torch_pipelines), and loads their tokenizers and LoRA.
TORCH = [
    # Loads weights without a second copy of them.
    "accelerate>=1.15,<2",
    # Both clean texts. Without them diffusers leaves that out.
    "beautifulsoup4>=4.12,<5",
    "ftfy>=6.3,<7",
    DIFFUSERS,
    "gguf>=0.19,<0.20",
    "peft>=0.21.2,<0.22",
    "protobuf>=5,<8",
    "sentencepiece>=0.2.1,<0.3",
    "torch>=2.13,<2.14",
    # The release whose tables winobench.torch_pipelines.bridge reads with this torch.
    "torchax==0.0.13",
    # 5.24 takes no PEFT before 0.22, which is not out yet.
    "transformers<5.24",
]
# What makes the documentation site, and runs its tutorials.
DOCS = ["furo>=2025.9,<2027", "latex2mathml>=3.78,<4", "myst-nb>=1.4,<2", "sphinx>=8.2,<10"]
DOCS += ["sphinx-copybutton>=0.5.2,<1"]


# Class of diffusers -> its family in the package winobench.contrib.families.
TORCH_FAMILIES = {
    "AuraFlowPipeline": "aura_flow:FAMILY",
    "BriaFibo2Pipeline": "bria_fibo2:FAMILY",
    "BriaFiboPipeline": "bria_fibo:FAMILY",
    "CogView4Pipeline": "cog_view4:FAMILY",
    "DreamLiteMobilePipeline": "dream_lite:FAMILY",
    "DreamLitePipeline": "dream_lite:FAMILY",
    "ErnieImagePipeline": "ernie_image:FAMILY",
    "HiDreamImagePipeline": "hi_dream_image:FAMILY",
    "HunyuanDiTPAGPipeline": "hunyuan_dit:WITH_PAG",
    "HunyuanDiTPipeline": "hunyuan_dit:FAMILY",
    "HunyuanImagePipeline": "hunyuan_image:FAMILY",
    "Ideogram4Pipeline": "ideogram4:FAMILY",
    "Kandinsky3Pipeline": "kandinsky3:FAMILY",
    "Kandinsky5T2IPipeline": "kandinsky5:FAMILY",
    "Lumina2Pipeline": "lumina2:FAMILY",
    "NucleusMoEImagePipeline": "nucleus_image:FAMILY",
    "ZImageOmniPipeline": "z_image:OMNI",
    "ZImagePipeline": "z_image:FAMILY",
}


def read_version() -> str:
    """The version that the package states; read as text, because what it imports is not installed yet."""
    source = (ROOT / "winobench" / "base" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if match is None:
        raise RuntimeError('winobench/base/version.py has no line of the form __version__ = "..."')
    return match.group(1)


def read_long_description() -> str:
    """The README without links to other files of the repository, which lead nowhere on the page of an index."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!\w+:)[^)]*\)", r"\1", text)


setuptools.setup(
    name="winobench",
    version=read_version(),
    description="Measures how well text-to-image models understand what they generate, in JAX",
    long_description=read_long_description(),
    long_description_content_type="text/markdown",
    author="The winobench authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords="benchmark, diffusion models, evaluation, flax, gdbench, jax, text-to-image, winoviz, wsc+",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    # Installed inside winobench, so that no other package called launch or configs collides with them.
    package_dir={"winobench.launch": "launch", "winobench.configs": "configs"},
    packages=[
        *setuptools.find_packages(include=["winobench", "winobench.*"]),
        *(f"winobench.{name}" for name in setuptools.find_packages(include=["launch", "launch.*", "configs"])),
    ],
    entry_points={
        "console_scripts": ["winobench = winobench.__main__:main"],
        # Contrib packages: command = package, recipe = module, class of diffusers = family.
        "winobench.commands": [
            *("plan = winobench.contrib.planning", "cloud = winobench.contrib.planning"),
            "edit = winobench.contrib.editing",
            *("compare = winobench.contrib.people", "write_items = winobench.contrib.people"),
        ],
        "winobench.image_judgements": ["comparisons = winobench.contrib.people.comparison:judgements"],
        "winobench.tasks": ["datasets = winobench.contrib.datasets"],
        "winobench.recipes": [
            *(f"{name} = winobench.contrib.studies.{name}" for name in ("clevr_tiny", "clevr_flow", "clevr_verifier")),
            "nli = winobench.contrib.nli.training",
        ],
        "winobench.torch_families": [
            f"{name} = winobench.contrib.families.{family}" for name, family in TORCH_FAMILIES.items()
        ],
    },
    package_data={
        "winobench": ["py.typed", "*.pyi", "assets/**/*", "**/names.txt", "**/templates/*", "viewer/app/**/*"],
    },
    python_requires=">=3.11,<3.15",
    # The lowest versions that run the main job on Python 3.11 (.ci/matrix). All but promise, of tensorflow-datasets,
    # have wheels for 3.11 to 3.13, and later versions have them for 3.14.
    install_requires=[
        "absl-py>=2.1,<3",
        "array_record>=0.8.1,<0.9",
        # With JAX 0.11 from 0.12.9 on, which older releases of flax do not say, and which needs JAX 0.11.
        "flax>=0.12.6,<0.13",
        "grain>=0.2.12,<0.3",
        "huggingface_hub>=1.5,<3",
        # tensorflow-datasets imports it without asking for it.
        "importlib_resources>=6,<8",
        "jinja2>=3.1.4,<4",
        # 0.10.0 does not tell the platform of a function that is traced.
        "jax>=0.10.1,<0.12",
        "matplotlib>=3.9.2,<4",
        "ml_collections>=1,<2",
        "ml_dtypes>=0.5,<0.7",
        "numpy>=2.1,<3",
        "optax>=0.2.6,<0.3",
        "orbax-checkpoint>=0.11.32,<0.13",
        "pillow>=11,<14",
        "pyarrow>=18,<27",
        "rapidfuzz>=3.10,<4",
        "regex>=2025.10.22,<2027",
        "rich>=13.9,<16",
        "safetensors>=0.5,<0.9",
        # The first with bootstrap(rng=...).
        "scipy>=1.15,<2",
        # The first that reads a request's ranges in linear time.
        "starlette>=0.49.1,<2",
        # Writes TensorBoard's event files without TensorFlow.
        "tensorboardX>=2.6.2.2,<3",
        "tensorflow-datasets>=4.9.8,<5",
        # The first with image processors that work without torch. Brings the release of tokenizers that it fits.
        "transformers>=5.4,<6",
        "uvicorn>=0.38,<1",
    ],
    extras_require={
        "api": read_clients(),
        # Validates a SkyPilot task without a cloud.
        "cloud": ["skypilot>=0.14,<0.15"],
        "test": [
            # Compares the JSON Schemas in docs/schemas with real runs.
            "jsonschema>=4.26,<5",
            *read_clients(),
            *TORCH,
            *DOCS,
            # Small programs are compiled for TPUs, which needs no TPU; the release is the one that fits JAX's.
            "jax[tpu]>=0.10.1,<0.12",
            "hypothesis>=6,<7",
            # Checks a program of a user against the package's types.
            "mypy>=2.4,<3",
            "pytest>=9.2,<10",
            "pytest-xdist>=3.8,<4",
            "pyyaml>=6.0.3,<7",
            # Another minor release may format differently.
            "ruff>=0.17.6,<0.18",
            # A test installs a package that plugs in a task and a scorer.
            "setuptools>=77",
        ],
        "diffusers": [DIFFUSERS],
        "torch": TORCH,
        "docs": DOCS,
        # The viewer's tests, which also need Chromium.
        "browser": ["axe-playwright-python>=0.1.8,<0.2", "playwright>=1.65,<2"],
        # Logs of inspect_ai (winobench export --format=inspect), and experiment trackers (--log).
        "inspect": ["inspect-ai>=0.3.285,<0.4"],
        "trackio": ["trackio>=0.43,<1"],
        "wandb": ["wandb>=0.31,<1"],
        # The tagger behind ARO's order tasks; its model: python -m spacy download en_core_web_sm
        "order": ["spacy>=3.8,<4"],
        # The published code's shuffles need NLTK as well, and its data: python -m nltk.downloader punkt_tab
        "order_published": ["spacy>=3.8,<4", "nltk>=3.9.1,<4"],
        # Running on these, and compiling for them on a machine that has none (python -m launch.plan).
        "cuda": ["jax[cuda13]>=0.10.1,<0.12"],
        "tpu": ["jax[tpu]>=0.10.1,<0.12"],
    },
)
