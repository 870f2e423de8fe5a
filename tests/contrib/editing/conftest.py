from tests.evaluation.conftest import software_once  # noqa: F401
