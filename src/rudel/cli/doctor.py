"""`rudel doctor`."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli.output import print_json, print_table

if TYPE_CHECKING:
    from rudel.doctor.installed_packages import Package


def doctor(json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False) -> None:
    """Diagnose this installation."""
    from rudel import __version__
    from rudel.doctor import devices, feature_checks, machine, variables
    from rudel.doctor.asking import ask

    answers = ask()
    packages, unknown = _packages()
    found = {
        "rudel": __version__,
        "machine": asdict(machine.describe()),
        "devices": asdict(devices.describe(answers)),
        "packages": [asdict(package) for package in packages],
        "variables": [asdict(variable) for variable in variables.describe(os.environ)],
        "features": [asdict(feature) for feature in feature_checks.check_all(answers)],
    }
    if json:
        found["machine"]["cache"] = str(found["machine"]["cache"])
        print_json(found)
        return
    _print_machine(found["machine"], found["devices"])
    installed = ", ".join(f"{each['name']} {each['installed'] or 'missing'}" for each in found["packages"])
    print_table(["Installed", ""], [["rudel", __version__], ["with", unknown or installed]])
    if found["variables"]:
        typer.echo()
        rows = [[each["name"], each["value"] or "(empty)", each["effect"]] for each in found["variables"]]
        print_table(["Set here", "to", "so"], rows)
    typer.echo()
    print_table(
        ["Feature", "", ""], [[each["command"], each["purpose"], _describe_feature(each)] for each in found["features"]]
    )


def _packages() -> "tuple[list[Package], str | None]":
    """The packages that Rudel needs, or why they are not known."""
    from rudel.doctor.installed_packages import packages_of
    from rudel.doctor.problems import problem

    packages: list[Package] = []
    unknown = problem(lambda: packages.extend(packages_of()))
    return packages, unknown


def _describe_feature(feature: dict[str, Any]) -> str:
    return feature["problem"] or (f"ready. {feature['note']}" if feature["note"] else "ready")


def _print_machine(machine: dict[str, Any], devices: dict[str, Any]) -> None:
    from rudel.report.formatting import size

    cores = f"{machine['cores']}"
    if machine["why_fewer"]:
        cores = f"{machine['usable_cores']:g} of {machine['cores']}: {machine['why_fewer']}"
    memory = "unknown" if machine["usable_memory"] is None else size(machine["usable_memory"])
    if machine["memory"] and machine["usable_memory"] < machine["memory"]:
        memory += f" of {size(machine['memory'])}: a control group limits it"
    cache = f"{machine['cache']}, {size(machine['disk'])} free"
    rows = [
        ["system", machine["system"]],
        ["Python", machine["python"]],
        ["cores", cores],
        ["memory", memory],
        ["cache", cache if machine["cache_writable"] else f"{cache}, but it cannot be written: set RUDEL_CACHE"],
        ["JAX", _describe_devices(devices)],
    ]
    print_table(["This computer", ""], rows)
    if machine["warning"]:
        typer.echo(machine["warning"])
    typer.echo()


def _describe_devices(devices: dict[str, Any]) -> str:
    from rudel.report.formatting import size

    kinds: dict[str, int] = {}
    for device in devices["devices"]:
        memory = f", {size(device['memory'])}" if device["memory"] else ""
        kind = f"{device['platform']} ({device['kind']}{memory})" if device["kind"] != "cpu" else "cpu"
        kinds[kind] = kinds.get(kind, 0) + 1
    computes = " and ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items())
    text = f"computes on {computes}: {devices['why']}." if computes else ""
    if devices["problem"]:
        text += f" {devices['problem']}" + (f" {devices['mend']} adds it." if devices["mend"] else "")
    return text.strip()
