from tests.evaluation.conftest import software_once  # noqa: F401
from tests.report.conftest import run_folders  # noqa: F401
