"""A real API server for all tests here. They run in `make test-kubernetes`, which builds it; the suite leaves them out."""

from __future__ import annotations

import os

import pytest

from tests.services.plugin import missing
from tests.services.real import load_script

script = load_script("cluster")
Cluster = script.Cluster

collect_ignore_glob = [] if os.environ.get("FIRSTFAULT_KUBERNETES") else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster():
    """A cluster without nodes, with the operators' kinds."""

    try:
        with script.running() as one:
            yield one
    except script.MissingService as error:
        missing("kube-apiserver", str(error))
