"""The manifests for Kubernetes: valid, whole, closed, and in the order that a drain needs. No cluster is at hand."""

import re
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from services.cli.sidecar import Sidecar, render
from services.common import certificates
from services.common.settings import CONFIG_VARIABLE, Settings, load
from tests.harness.kustomization import FILE, Object, named, read
from tests.harness.manifests import (
    BUILDS,
    COMPONENTS,
    EXAMPLE,
    HERE,
    ROLES,
    ROOT,
    containers,
    environment,
    members,
    of,
    pod,
)

# The oldest that has all that is used (sleep in preStop), and the newest that is known.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
CERT_MANAGER = "cert-manager.io/v1"
# Kubernetes makes it in each namespace.
GIVEN_CONFIGMAPS = {"kube-root-ca.crt"}
# Seconds from the end of a drain to the process's: last words, settlements, writes.
AFTER_DRAIN_S = 12
built = pytest.mark.parametrize("objects", BUILDS.values(), ids=BUILDS.keys())


def settings(objects: list[Object], role: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Settings:
    """Those that the role's pods have."""
    monkeypatch.chdir(folder)
    for name, value in environment(objects, role).items():
        monkeypatch.setenv(name, value)
    return Settings()


def selects(selector: Object, labels: Object) -> bool:
    assert not selector.keys() - {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


@pytest.mark.parametrize("folder", [HERE / "base", EXAMPLE, *COMPONENTS], ids=lambda each: each.name)
def test_a_kustomization_names_every_file_of_its_folder_and_none_besides(folder: Path) -> None:
    assert named(folder) == {each.name for each in folder.iterdir() if each.name != FILE}
    assert all((folder / name).exists() for name in read(folder).get("components", []))


@built
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_of_kubernetes(objects: list[Object], version: str) -> None:
    assert len(objects) > 10
    for each in objects:
        if each["apiVersion"] != CERT_MANAGER:
            kubernetes_validate.validate(each, version, strict=True)


def test_what_kubernetes_does_not_know_is_seen() -> None:
    # The check above would be worth nothing if it took anything.
    wrong = {**of(BUILDS["base"], "Service")["edge-public"], "spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="spek"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@built
def test_every_reference_leads_somewhere(objects: list[Object]) -> None:
    maps, accounts, issuers = (of(objects, kind) for kind in ("ConfigMap", "ServiceAccount", "Issuer"))
    for role in ROLES:
        stateful = of(objects, "StatefulSet")[role]["spec"]
        spec = stateful["template"]["spec"]
        assert spec["serviceAccountName"] in accounts
        volumes = {
            each["name"]
            for each in [*spec["volumes"], *(one["metadata"] for one in stateful.get("volumeClaimTemplates", []))]
        }
        mounted = {mount["name"] for each in containers(spec).values() for mount in each["volumeMounts"]}
        assert mounted == volumes
        ports = {port["name"] for each in containers(spec).values() for port in each.get("ports", [])}
        probed = {
            each[probe]["tcpSocket"]["port"]
            for each in containers(spec).values()
            for probe in each
            if probe.endswith("Probe") and "tcpSocket" in each[probe]
        }
        assert probed <= ports
        for service in of(objects, "Service").values():
            if service["spec"]["selector"].items() <= stateful["template"]["metadata"]["labels"].items():
                assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        asked = {value["name"] for name, value in members(spec) if name in ("configMapRef", "configMap")}
        assert asked <= maps.keys() | GIVEN_CONFIGMAPS
    for binding in of(objects, "RoleBinding").values():
        assert binding["roleRef"]["name"] in of(objects, "Role")
        for subject in binding["subjects"]:
            assert accounts[subject["name"]]["metadata"]["namespace"] == subject["namespace"]
    for certificate in of(objects, "Certificate").values():
        issuer = certificate["spec"]["issuerRef"]
        assert issuer["kind"] == "ClusterIssuer" or issuer["name"] in issuers


def test_the_readme_has_each_secret_that_is_asked_for_with_its_keys() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (`[^|]+`) \|.*\| ([^|]+) \|$", (HERE / "README.md").read_text(), re.MULTILINE
    )
    told = {name: set(re.findall(r"`([^`]+)`", keys)) for name, keys, _ in rows}
    # What a sidecar reads of a folder of certificates.
    identity = {"tls.crt", "tls.key", "ca.crt"}
    mounted = {"edge-public": {"tls.crt", "tls.key"}, "seal-key": {"seal_key"}, "database-ca": {"ca.crt"}}
    asked: dict[str, set[str]] = {}
    for role in ROLES:
        for name, value in members(pod(BUILDS["all"], role)):
            if name == "secretKeyRef":
                asked.setdefault(value["name"], set()).add(value["key"])
            if name == "secret":
                secret = value["secretName"]
                asked[secret] = identity if secret.endswith("-identity") else mounted[secret]
    assert told == asked
    # Those that somebody else than a person makes are made.
    made = {each["spec"]["secretName"] for each in of(BUILDS["example"], "Certificate").values()}
    assert {name for name, _, by in rows if by != "you"} == made - {"authority"}
    (copied,) = [each for each in containers(pod(BUILDS["all"], "billing")).values() if each["name"] == "seal-key"]
    assert copied["command"][-2] == "/seal-secret/seal_key"


@built
def test_no_secret_is_in_the_files(objects: list[Object]) -> None:
    assert of(objects, "Secret") == {}
    for role in ROLES:
        for each in containers(pod(objects, role)).values():
            for variable in each.get("env", []):
                assert set(variable) == {"name", "valueFrom"}, variable["name"]
        names = of(objects, "ConfigMap")[role]["data"].keys()
        assert not any(name.endswith(("TOKEN", "__DATABASE")) for name in names)
    for path in HERE.rglob("*.yaml"):
        assert not re.search(r"://[^/\s]*:[^/\s]*@|BEGIN [A-Z ]*KEY|password", path.read_text(), re.IGNORECASE), path


def test_the_images_are_those_of_compose() -> None:
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    ours = {each["image"] for role in ROLES for each in containers(pod(BUILDS["base"], role)).values()}
    assert ours <= {each["image"] for each in composed.values()}
    assert ours == {"speedinfer", composed["edge-sidecar"]["image"]}


@built
def test_settings_are_known(objects: list[Object]) -> None:
    for role in ROLES:
        variables = [
            *of(objects, "ConfigMap")[role]["data"],
            *(each["name"] for each in pod(objects, role)["containers"][0].get("env", [])),
        ]
        for name in set(variables) - {CONFIG_VARIABLE}:
            section, _, field = name.removeprefix("SPEEDINFER_").lower().partition("__")
            model = type(getattr(Settings(), section)) if field else Settings
            assert (field or section) in model.model_fields, name


@built
def test_the_routers_settings_file_is_where_it_is_looked_for(objects: list[Object], tmp_path: Path) -> None:
    maps, spec = of(objects, "ConfigMap"), pod(objects, "router")
    path = Path(maps["router"]["data"][CONFIG_VARIABLE])
    (name,) = [volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "workers"]
    (tmp_path / path.name).write_text(maps[name]["data"][path.name])
    assert load(tmp_path / path.name, {}).router == Settings().router
    # Whoever has the variable needs the file.
    for each in containers(spec).values():
        mounts = {mount["mountPath"]: mount["name"] for mount in each["volumeMounts"]}
        assert mounts.get(str(path.parent)) == ("workers" if "envFrom" in each else None)
    assert not any(CONFIG_VARIABLE in maps[role]["data"] for role in ("edge", "billing"))


@built
@pytest.mark.parametrize("role", ROLES)
def test_a_service_drains_before_its_sidecar_is_stopped(
    objects: list[Object], role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = pod(objects, role)
    # A native sidecar is the one kind of container that ends after the others. The last of those that start before the service.
    assert spec["initContainers"][-1]["name"] == "envoy"
    assert [each.get("restartPolicy") for each in spec["initContainers"]][-1] == "Always"
    assert not any("restartPolicy" in each for each in [*spec["initContainers"][:-1], *spec["containers"]])
    assert [each["name"] for each in spec["containers"]] == [role]
    assert "startupProbe" in spec["initContainers"][-1]
    pause = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pause >= 10 if role == "edge" else pause == 0
    drain = getattr(settings(objects, role, monkeypatch, tmp_path), role).limits.drain_s
    assert spec["terminationGracePeriodSeconds"] > pause + drain + AFTER_DRAIN_S


@built
@pytest.mark.parametrize("role", ROLES)
def test_a_pod_has_no_right(objects: list[Object], role: str) -> None:
    spec = pod(objects, role)
    own = spec["securityContext"]
    assert (own["runAsNonRoot"], own["runAsUser"], own["runAsGroup"], own["fsGroup"]) == (True, 10001, 10001, 10001)
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "secret", "projected"}
    for each in containers(spec).values():
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= each["resources"]["requests"].keys()
        # A volume of a Secret that is mounted in part is never renewed.
        assert not any("subPath" in mount for mount in each["volumeMounts"])
        writable = {mount["name"] for mount in each["volumeMounts"] if not mount.get("readOnly")}
        expected = {
            "sidecar-configuration": {"envoy", "scratch"},
            "seal-key": {"seal"},
            "envoy": set(),
            role: {"data", "scratch"},
        }
        assert writable == expected[each["name"]]
    # Else each Service puts variables into each pod, and settings refuse those that look like theirs.
    assert spec["enableServiceLinks"] is False


@built
def test_no_pod_has_a_token_of_kubernetes_but_the_router_that_looks_for_workers(objects: list[Object]) -> None:
    assert not any(each["automountServiceAccountToken"] for each in of(objects, "ServiceAccount").values())
    holders = set()
    for role in ROLES:
        spec = pod(objects, role)
        assert spec["automountServiceAccountToken"] is False
        tokens = {volume["name"] for volume in spec["volumes"] if "serviceAccountToken" in dict(members(volume))}
        for each in containers(spec).values():
            holders |= {(role, each["name"]) for mount in each["volumeMounts"] if mount["name"] in tokens}
    looks = "worker-discovery" in of(objects, "Role")
    assert holders == ({("router", "router")} if looks else set())
    for each in of(objects, "Role").values():
        (rule,) = each["rules"]
        assert (rule["apiGroups"], rule["resources"]) == (["discovery.k8s.io"], ["endpointslices"])
        assert set(rule["verbs"]) == {"get", "list", "watch"}
        assert [subject["name"] for subject in of(objects, "RoleBinding")["worker-discovery"]["subjects"]] == ["router"]


@built
def test_nothing_is_let_in_but_what_is_listed(objects: list[Object]) -> None:
    policies = of(objects, "NetworkPolicy")
    for role in ROLES:
        labels = of(objects, "StatefulSet")[role]["spec"]["template"]["metadata"]["labels"]
        on = {name: each["spec"] for name, each in policies.items() if selects(each["spec"]["podSelector"], labels)}
        # One that has both directions shuts what none of them opens.
        assert set(on["speedinfer"]["policyTypes"]) == {"Ingress", "Egress"}
        let_in = {
            (name, port["port"], who)
            for name, each in on.items()
            for rule in each.get("ingress", [])
            for port in rule["ports"]
            for who in sources(rule)
        }
        expected = {("edge", "public", "anybody")} if role == "edge" else {(role, "mesh", "edge")}
        assert let_in == expected | ({("observed", "observed", "monitoring")} if "observed" in policies else set())
    # Whoever may go anywhere may not go to the node's metadata.
    for name, each in policies.items():
        for member, block in members(each["spec"]):
            if member == "ipBlock":
                assert {"0.0.0.0/0": "169.254.0.0/16", "::/0": "fd00:ec2::254/128"}[block["cidr"]] in block["except"], (
                    name
                )
    (out,) = policies["edge"]["spec"]["egress"]
    assert {each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in out["to"]} == {
        "router",
        "billing",
    }
    assert [each["port"] for each in out["ports"]] == ["mesh"]


def sources(rule: Object) -> Iterator[str]:
    for each in rule.get("from", [{}]):
        ((_, selector),) = each.items() if each else (("", {}),)
        labels = selector.get("matchLabels", {})
        yield labels.get("app.kubernetes.io/component") or labels.get("kubernetes.io/metadata.name") or "anybody"


@built
def test_only_the_edges_public_port_is_published(objects: list[Object]) -> None:
    services = of(objects, "Service")
    published = {
        name: each["spec"]["ports"]
        for name, each in services.items()
        if each["spec"].get("type", "ClusterIP") != "ClusterIP"
    }
    assert published == {
        "edge-public": [{"name": "public", "port": 443, "targetPort": "public", "appProtocol": "https"}]
    }
    assert all(each["spec"]["clusterIP"] == "None" for name, each in services.items() if name not in published)
    assert not any(name == "hostPort" for role in ROLES for name, _ in members(pod(objects, role)))


@built
@pytest.mark.parametrize("role", ROLES)
def test_instances_are_spread_and_go_one_at_a_time(objects: list[Object], role: str) -> None:
    stateful = of(objects, "StatefulSet")[role]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert selects(stateful["selector"], labels)
    budget = of(objects, "PodDisruptionBudget")[role]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    spread = stateful["template"]["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    for selector in [budget["selector"], *(each["labelSelector"] for each in spread)]:
        others = [of(objects, "StatefulSet")[other]["spec"]["template"]["metadata"]["labels"] for other in ROLES]
        assert [each for each in others if selects(selector, each)] == [labels]


def test_an_edges_outbox_outlives_its_pod() -> None:
    stateful = of(BUILDS["base"], "StatefulSet")["edge"]["spec"]
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    (claim,) = stateful["volumeClaimTemplates"]
    image = (ROOT / "Dockerfile").read_text()
    (place,) = re.findall(r"SPEEDINFER_DATA_DIR=(\S+)", image)
    mounts = {
        mount["name"]: mount["mountPath"] for mount in stateful["template"]["spec"]["containers"][0]["volumeMounts"]
    }
    assert mounts[claim["metadata"]["name"]] == place


def test_identities_are_those_that_sidecars_look_for() -> None:
    trust_domain = Settings().sidecar.trust_domain
    made = of(BUILDS["example"], "Certificate")
    for role in ROLES:
        spec = made[f"{role}-identity"]["spec"]
        assert spec["uris"] == [certificates.identity(trust_domain, role)]
        assert set(spec["usages"]) == {"digital signature", "server auth", "client auth"}
        assert hours(spec["renewBefore"]) < hours(spec["duration"]) <= 90 * 24
        assert spec["privateKey"]["rotationPolicy"] == "Always"
        assert spec["issuerRef"]["name"] == "identities"
    # Nothing but identities is of their CA, and nothing that runs sees its key.
    ours = [name for name, each in made.items() if each["spec"]["issuerRef"]["name"] == "identities"]
    assert sorted(ours) == sorted(f"{role}-identity" for role in ROLES)
    authority = of(BUILDS["example"], "Issuer")["identities"]["spec"]["ca"]["secretName"]
    assert made["authority"]["spec"]["secretName"] == authority
    mounted = {
        value["secretName"] for role in ROLES for name, value in members(pod(BUILDS["all"], role)) if name == "secret"
    }
    assert authority not in mounted
    assert "uris" not in made["edge-public"]["spec"]


def hours(text: str) -> int:
    return int(text.removesuffix("h"))


@built
@pytest.mark.parametrize("role", ROLES)
def test_each_instance_has_a_name_and_the_edges_sidecar_knows_all(
    objects: list[Object], role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = pod(objects, role)
    write, envoy = containers(spec)["sidecar-configuration"], containers(spec)["envoy"]
    assert write["args"][:3] == ["sidecar", role, "--output"]
    folder = Path(write["args"][3])
    # Both read the same settings, and Envoy what was written.
    assert write["envFrom"] == spec["containers"][0]["envFrom"] == [{"configMapRef": {"name": role}}]
    assert envoy["args"][:2] == ["-c", f"{folder}/envoy.yaml"]
    places = {mount["mountPath"] for mount in envoy["volumeMounts"]}
    assert str(folder) in places
    known = settings(objects, role, monkeypatch, tmp_path)
    written = render(known, Sidecar(role), folder)
    read_from = {value for text in written.values() for value in re.findall(r'"(/certificates/\w+)"', text)}
    assert read_from == places - {str(folder)}
    configuration = yaml.safe_load(written["envoy.yaml"])["static_resources"]
    listeners = [each["address"]["socket_address"] for each in configuration["listeners"]]
    opened = {each["port_value"] for each in listeners if each["address"] == "0.0.0.0"}
    assert opened == {port["containerPort"] for port in envoy["ports"]}
    called = {
        f"{address['address']}:{address['port_value']}"
        for cluster in configuration["clusters"]
        for name, address in members(cluster)
        if name == "socket_address" and address["address"] != "127.0.0.1"
    }
    assert called == (instances(objects, "router") | instances(objects, "billing") if role == "edge" else set())


def instances(objects: list[Object], role: str) -> set[str]:
    """Where a role's instances are: the names that Kubernetes gives the pods of a StatefulSet."""
    stateful = of(objects, "StatefulSet")[role]["spec"]
    service = of(objects, "Service")[stateful["serviceName"]]["spec"]
    # The names must stand while a pod is not ready, too; whether it serves is asked of itself.
    assert service["publishNotReadyAddresses"] is True
    (port,) = service["ports"]
    return {f"{role}-{number}.{stateful['serviceName']}:{port['port']}" for number in range(stateful["replicas"])}
