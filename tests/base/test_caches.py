import os

import jax
import pytest

from winobench.base import caches


def test_the_folder(monkeypatch):
    home = os.path.expanduser("~")
    monkeypatch.delenv("WINOBENCH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert caches.folder() == f"{home}/.cache/winobench"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert caches.folder() == "/somewhere/winobench"
    monkeypatch.setenv("WINOBENCH_CACHE", "~/mine")
    assert caches.folder() == f"{home}/mine"


def test_the_processor(monkeypatch):
    name = caches.processor()
    assert len(name) == 12
    assert caches.processor() == name
    monkeypatch.setattr(os, "cpu_count", lambda: 1000)
    assert caches.processor() != name


@pytest.fixture
def settings(monkeypatch, tmp_path):
    names = "jax_compilation_cache_dir", "jax_enable_compilation_cache", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_what_is_compiled_is_kept(settings, tmp_path):
    caches.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "cache" / "compiled" / caches.processor())
    assert os.path.isdir(jax.config.jax_compilation_cache_dir)
    assert jax.config.jax_persistent_cache_min_compile_time_secs < 1


def test_settings_of_the_user_come_first(settings, tmp_path, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", "/mine")
    caches.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == "/mine"
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    caches.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_enable_compilation_cache", True)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1.0")
    caches.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is not None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1


def test_a_folder_that_cannot_be_made_is_left_alone(settings, tmp_path):
    (tmp_path / "cache").write_text("a file")
    caches.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
