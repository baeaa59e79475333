"""Files behind the configuration are watched: a mounted ConfigMap that changes is loaded without a signal."""

from __future__ import annotations

import os
from pathlib import Path

from firstfault.rules.load import shipped_folder
from firstfault.topology.watch import Watch
from tests.app.living import living, until


def mount(folder: Path, generation: str, files: dict[str, str]) -> None:
    """Write files as the kubelet does: a new folder, and one link that is swapped."""
    data = folder / f"..{generation}"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / name).write_text(text, encoding="utf-8")
    fresh = folder / "..data_tmp"
    fresh.symlink_to(data.name)
    os.replace(fresh, folder / "..data")
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def test_a_swapped_configmap_is_one_change(tmp_path):
    """It is told once, after two looks that agree."""
    mount(tmp_path, "one", {"a.yaml": "1"})
    watch = Watch()
    looks = [watch.changed([tmp_path]) for _ in range(3)]
    mount(tmp_path, "two", {"a.yaml": "2", "b.yaml": "3"})
    looks += [watch.changed([tmp_path]) for _ in range(4)]
    assert looks == [False, False, False, False, True, False, False]


def test_a_change_that_is_taken_back_is_none(tmp_path):
    """What looks again as it was loaded is not loaded again; a file that goes and stays away is a change."""
    file = tmp_path / "a.yaml"
    file.write_text("1", encoding="utf-8")
    os.utime(file, (1, 1))
    kept = tmp_path.parent / "kept.yaml"
    watch = Watch()
    watch.changed([tmp_path])
    watch.changed([tmp_path])
    file.rename(kept)
    away = [watch.changed([tmp_path])]
    kept.rename(file)
    back = [watch.changed([tmp_path]) for _ in range(3)]
    file.unlink()
    gone = [watch.changed([tmp_path]) for _ in range(3)]
    assert (away, back, gone) == ([False], [False, False, False], [False, True, False])


async def test_entries_of_a_configmap_arrive_without_a_signal(tmp_path):
    """A broken one is refused and the next good one taken."""
    name = "cuda-out-of-memory"
    entry = next(shipped_folder().glob(f"*/{name}.yaml")).read_text(encoding="utf-8")
    folder = tmp_path / "rules"
    mount(folder, "one", {})
    settings = {"FIRSTFAULT_RULES__FOLDERS": f"[{folder}]", "FIRSTFAULT_RULES__SHIPPED": "true", "FIRSTFAULT_RELOAD__WATCH_SECS": "0.1"}
    async with living(tmp_path, **settings) as one:

        async def digest() -> str:
            return (await one.get("/version"))["rules_hash"]

        before = await digest()
        mount(folder, "two", {f"{name}.yaml": "fingerprint: bad\n"})
        await until(lambda: one.metric("firstfault_rules_last_reload_successful") == 0)
        assert await digest() == before
        mount(folder, "three", {f"{name}.yaml": entry + "# of this site\n"})
        await until(lambda: one.metric("firstfault_rules_last_reload_successful") == 1)
        assert await digest() != before
