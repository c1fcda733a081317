"""Every test has an upstream and a Backstop of its own, so that nothing one test teaches Backstop reaches the next."""
import pytest

from backstop import Backstop
from upstream import Upstream


@pytest.fixture
def upstream():
    up = Upstream()
    yield up
    up.close()


@pytest.fixture
def start(tmp_path):
    """Starts a Backstop in front of a port, with settings like "stream.mode=shield"; stopped when the test is over."""
    started = []

    def go(port, *settings):
        started.append(Backstop(port, tmp_path, settings))
        return started[-1]

    yield go
    for backstop in started:
        backstop.close()


@pytest.fixture
def backstop(upstream, start):
    return start(upstream.port)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what Backstop said."""
    report = yield
    if report.failed and (backstop := item.funcargs.get("backstop")):
        report.sections.append(("backstop", backstop.log))
    return report
