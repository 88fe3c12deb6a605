#!/usr/bin/env python3
"""The Helm chart: rendered by Helm's own engine, checked against the published schemas of Kubernetes, and its options, paths
and variables against the program.

Usage: helm.py PROGRAM. It needs a Python with helm-python-sdk 0.2.2 (Helm 4.2) and kubernetes-validate 1.37.0 of PyPI; the
build's variable EXOGPU_HELM_PYTHON names one. Ends with 77 where they are missing."""
import os
import re
import subprocess
import sys

try:
    import helm_python
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"skipped: {error}; pip install helm-python-sdk==0.2.2 kubernetes-validate==1.37.0, and EXOGPU_HELM_PYTHON")
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSIONS = ("1.27", "1.31", "1.34")  # of Kubernetes: the oldest that the chart takes, and newer ones
EVERYTHING = {"servers": {"models": "files", "names": ["gpu.example.org"], "options": ["--load-on-demand"],
                          "service": {"annotations": {"a": "b"}}},
              "image": {"pullSecrets": ["pull"]},
              "nodes": {"pools": {"amd": {"enabled": True}, "cpu": {"enabled": True, "options": ["--spares=off"]}}}}


def render(values):
    with helm_python.Chart.load(os.path.join(ROOT, "packaging", "helm", "exogpu")) as chart:
        texts = chart.render(values, name="gpu", namespace="lab")
    return [one for text in texts.values() for one in yaml.safe_load_all(text) if one]


def options(program, command):
    text = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  --([a-z-]+)", text, re.M)), text


def pods(documents):
    return [one["spec"]["template"]["spec"] for one in documents if one["kind"] in ("Deployment", "DaemonSet")]


def check_pod(pod, program):
    main = pod["containers"][0]
    known, text = options(program, main["args"][0])
    for argument in main["args"][1:]:
        name = argument.removeprefix("--").split("=")[0]
        assert argument.startswith("--") and name in known, f"exogpu {main['args'][0]} has no {argument}"
    for one in pod["initContainers"] + pod["containers"]:
        context = one["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], one["name"]
        assert context["capabilities"]["drop"] == ["ALL"], one["name"]
        mounted = {mount["name"] for mount in one["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pod["volumes"]}, one["name"]
    assert pod["securityContext"]["runAsUser"] == 52415  # docker/Dockerfile
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in main:
            assert main[probe]["httpGet"]["path"] == "/healthz" and main[probe]["httpGet"]["scheme"] == "HTTPS"
    if main["args"][0] == "node":
        assert "EXOGPU_TICKET" in text and "EXOGPU_TICKET" in [one["name"] for one in main["env"]]
        seconds = int(re.search(r"--drain=(\d+)s", " ".join(main["args"]))[1])
        assert pod["terminationGracePeriodSeconds"] > seconds, "it is killed before it has drained"
    else:
        assert {"livenessProbe", "readinessProbe"} <= set(main), "a server is looked at"


def main():
    program = sys.argv[1]
    for values in ({}, EVERYTHING):
        documents = render(values)
        for version in VERSIONS:
            for one in documents:
                kubernetes_validate.validate(one, version, strict=True)
        for pod in pods(documents):
            check_pod(pod, program)
        kinds = sorted(one["kind"] for one in documents)
        assert kinds.count("DaemonSet") == (1 if not values else 3), kinds
        assert kinds.count("NetworkPolicy") == 2 and "PodDisruptionBudget" in kinds, kinds
    broken = next(one for one in documents if one["kind"] == "Deployment")
    broken["spec"]["template"]["spec"]["containers"][0]["imagePullpolicy"] = "Always"
    try:
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)
    except kubernetes_validate.ValidationError:
        pass
    else:
        raise AssertionError("a member that Kubernetes does not know is not noticed")
    print(f"{len(documents)} documents are valid for Kubernetes {', '.join(VERSIONS)}")


main()
