"""What the chart can be told: one model a part of values.yaml, whose fields each say what they do.

`build.py` writes values.yaml, values.schema.json and the reference from it; nothing of them is written by hand.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")]
Object = dict[str, Any]  # of Kubernetes, checked by its API server
Texts = dict[str, str]


class Part(BaseModel):
    """Refuse what it does not know."""

    model_config = ConfigDict(extra="forbid")


class DaemonConfig(Part):
    """Settings of the daemon itself; the schema of `firstfault config schema` stands here instead, without inline secrets."""


class Image(Part):
    """The container image."""

    repository: str = Field(
        "registry.example.org/firstfault", description="Image without its tag: where you pushed what `make image` builds."
    )
    tag: str = Field("", description="Tag; empty: the chart's appVersion.")
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$", description="Digest (`sha256:...`), which wins over the tag.")
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="When the node asks the registry.")
    pullSecrets: list[Name] = Field([], description="Secrets with the registry's credentials.")


class ServiceAccount(Part):
    """Whom the pods are in the cluster."""

    create: bool = Field(True, description="Whether service accounts are made, one for the correlator and one for the agents.")
    annotations: Texts = Field({}, description="Annotations of the service accounts.")
    correlatorName: str = Field("", description="Name of the correlator's; empty: derived from the release.")
    agentName: str = Field("", description="Name of the agents'; empty: derived from the release.")


class Rules(Part):
    """Entries of your own, beside those in the image. A changed ConfigMap is taken over without a restart."""

    configMaps: list[Name] = Field([], description="ConfigMaps in the release's namespace whose keys are entries (`<fingerprint>.yaml`).")
    inline: Texts = Field({}, description="Entries given here: file name to text.")


class Transport(Part):
    """How what agents and sidecars find reaches the correlator."""

    kind: Literal["http", "kafka"] = Field(
        "http", description="`http`: posted to the correlator. `kafka`: through the topics of the cluster that `config.kafka` names."
    )
    existingSecret: str = Field(
        "",
        description="Secret whose key `token` agents and sidecars show to the correlator; empty: one is made and kept. Where Helm does not "
        "talk to the cluster (helm template, Argo CD) it would be made anew each time: name one there.",
    )


class Alertmanager(Part):
    """Where pages go. Every replica by itself; a headless Service is every one of its pods."""

    urls: list[str] = Field([], description="URLs, such as `http://alertmanager-operated.monitoring:9093`.")
    labels: Texts = Field({}, description="Labels put on every alert, such as `cluster`.")
    existingSecret: str = Field("", description="Secret with the way in: its key `token` (bearer), or `password` where `username` is set.")
    username: str = Field("", description="User name for basic authentication with that secret's `password`.")


class Persistence(Part):
    """The volume of the correlator's state: incidents, positions, what people said."""

    enabled: bool = Field(True, description="Whether state outlives the pod. Without it a restart forgets incidents and pages again.")
    size: Quantity = Field("10Gi", description="Size of the claim.")
    storageClass: str = Field("", description="Storage class; empty: the cluster's default.")
    accessModes: list[Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]] = Field(["ReadWriteOnce"], description="Access modes.")
    existingClaim: str = Field("", description="Claim to use instead of one of its own.")
    annotations: Texts = Field({}, description="Annotations of the claim.")


class Service(Part):
    """The Service before the correlator: console, API, metrics and the events of agents and sidecars."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Type.")
    port: int = Field(9465, ge=1, le=65535, description="Port.")
    annotations: Texts = Field({}, description="Annotations.")


class Ingress(Part):
    """An Ingress before the console. It has no login of its own: let the proxy ask for one."""

    enabled: bool = Field(False, description="Whether one is made.")
    className: str = Field("", description="Ingress class; empty: the cluster's default.")
    annotations: Texts = Field({}, description="Annotations.")
    host: str = Field("", description="Host name; links in pages use it.")
    tlsSecret: str = Field("", description="Secret with the certificate; empty: no TLS.")


class Budget(Part):
    """A PodDisruptionBudget."""

    enabled: bool = Field(True, description="Whether one is made.")
    maxUnavailable: int = Field(1, ge=1, description="How many may be drained at once. With one replica, 1 lets nodes be drained.")


class Pod(Part):
    """What every kind of pod can be told."""

    resources: Object = Field({}, description="Requests and limits.")
    podAnnotations: Texts = Field({}, description="Annotations of the pods.")
    podLabels: Texts = Field({}, description="Labels of the pods.")
    nodeSelector: Texts = Field({}, description="Nodes to run on.")
    affinity: Object = Field({}, description="Affinity.")
    priorityClassName: str = Field("", description="Priority class.")
    terminationGracePeriodSeconds: int = Field(45, ge=5, description="Longer than the daemon's `limits.shutdown_secs` (20).")
    extraEnv: list[Object] = Field([], description="Further environment variables.")
    extraVolumes: list[Object] = Field([], description="Further volumes.")
    extraVolumeMounts: list[Object] = Field([], description="Further mounts of the container.")
    extraContainers: list[Object] = Field([], description="Further containers of the pods.")


class Correlator(Pod):
    """The one that decides and pages: turns what agents, sidecars and Kafka tell into incidents."""

    enabled: bool = Field(True, description="Whether it is deployed.")
    kind: Literal["StatefulSet", "Deployment"] = Field(
        "StatefulSet", description="`Deployment` where state lives in Kafka, or on a claim that exists already."
    )
    replicas: int = Field(1, ge=0, description="How many. Each job is judged by one of them.")
    config: DaemonConfig = Field(DaemonConfig(), description="Settings of the daemon, over those of `config`.")
    resources: Object = Field(
        {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}, description="Requests and limits."
    )
    tolerations: list[Object] = Field([], description="Taints to tolerate.")
    topologySpreadConstraints: list[Object] = Field([], description="How replicas spread.")
    persistence: Persistence = Persistence()
    service: Service = Service()
    ingress: Ingress = Ingress()
    podDisruptionBudget: Budget = Budget()


class Agent(Pod):
    """The one on every node: reads the logs of all its pods, and what the kernel says."""

    enabled: bool = Field(False, description="Whether it is deployed.")
    config: DaemonConfig = Field(DaemonConfig(), description="Settings of the daemon, over those of `config`.")
    namespaces: list[Name] = Field([], description="Namespaces whose pods are read; empty: all of them.")
    kernel: bool = Field(
        True,
        description="Whether kernel messages (Xid, out-of-memory kills, links) are read from /dev/kmsg. Kubernetes gives that device to "
        "privileged containers only; with `false` the agent runs without privileges and node evidence is missing.",
    )
    correlatorUrls: list[str] = Field([], description="URLs of correlators elsewhere; empty: this release's.")
    watchPods: bool = Field(True, description="Whether pods of the node are watched for labels and ends (read-only, cluster role).")
    docker: bool = Field(False, description="Whether the runtime is Docker, whose logs are links into /var/lib/docker/containers.")
    stateHostPath: str = Field(
        "/var/lib/firstfault", pattern="^/.+", description="Folder on the node for positions and unsent observations; it outlives the pod."
    )
    resources: Object = Field(
        {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}, description="Requests and limits."
    )
    tolerations: list[Object] = Field([{"operator": "Exists"}], description="Taints to tolerate; by default all, GPU taints among them.")
    updateStrategy: Object = Field({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}, description="How updates roll.")


class Sidecar(Part):
    """What the templates `firstfault.sidecar`, `.sidecar.volumes` and `.sidecar.logMount` put into a training pod."""

    logs: str = Field("/var/log/train", pattern="^/.+", description="Where both containers mount the shared folder of logs.")
    logsSizeLimit: Quantity = Field("20Gi", description="Most that logs may take; beyond it the kubelet evicts the pod.")
    processesPerNode: int = Field(0, ge=0, description="Processes in each pod, where the launcher's variables do not tell; 0: not said.")
    correlatorUrls: list[str] = Field(
        [],
        description="URLs of correlators elsewhere; empty: this release's. Where there is none either, jobs of one pod page by themselves.",
    )
    tokenSecret: str = Field(
        "", description="Secret in the training pod's namespace whose key `token` the correlator takes; empty: the name of this release's."
    )
    config: DaemonConfig = Field(DaemonConfig(), description="Settings of the daemon, over those of `config`.")
    resources: Object = Field(
        {"requests": {"cpu": "20m", "memory": "160Mi"}, "limits": {"memory": "512Mi"}}, description="Requests and limits."
    )
    securityContext: Object = Field(
        {"runAsUser": 0, "runAsGroup": 0},
        description="User and group: those of the training container, since torchrun makes its log folders for their owner only. It has no "
        "capabilities in any case.",
    )


class Monitor(Part):
    """How Prometheus finds the pods. Needs the Prometheus operator's kinds in the cluster."""

    enabled: bool = Field(False, description="Whether a ServiceMonitor (correlator) and a PodMonitor (agents) are made.")
    labels: Texts = Field({}, description="Labels that your Prometheus selects monitors by, often `release: kube-prometheus-stack`.")
    interval: str = Field("30s", pattern=r"^[0-9]+(ms|s|m|h)$", description="How often metrics are read.")
    sidecars: bool = Field(False, description="Whether a PodMonitor for sidecars in all namespaces is made too.")


class PrometheusRule(Part):
    """Recording rules, and alerts on firstfault itself."""

    enabled: bool = Field(False, description="Whether one is made.")
    labels: Texts = Field({}, description="Labels that your Prometheus selects rules by.")
    incidents: bool = Field(False, description="Whether incidents page from metrics too; only where nothing is pushed to Alertmanager.")
    runbookUrl: str = Field("", description="Where your docs/alerts.md is; empty: the address in the shipped rules.")


class Dashboards(Part):
    """Dashboards as a ConfigMap for Grafana's sidecar."""

    enabled: bool = Field(False, description="Whether one is made.")
    labels: Texts = Field({"grafana_dashboard": "1"}, description="Labels that Grafana's sidecar looks for.")
    annotations: Texts = Field({}, description="Annotations, such as `grafana_folder`.")


class NetworkPolicy(Part):
    """Who may talk to the pods."""

    enabled: bool = Field(False, description="Whether policies are made.")
    eventsFrom: list[Object] = Field(
        [{"namespaceSelector": {}}], description="Peers that may reach the correlator: namespaces of training jobs, ingress, Prometheus."
    )
    metricsFrom: list[Object] = Field([{"namespaceSelector": {}}], description="Peers that may read the agents' metrics.")
    egress: list[Object] = Field([], description="Egress rules of all pods; empty: egress is not restricted.")


class Probes(Part):
    """How the kubelet asks after the pods."""

    scheme: Literal["HTTP", "HTTPS"] = Field("HTTP", description="`HTTPS` where `web.config_file` sets TLS.")
    tcp: bool = Field(
        False, description="Whether only the port is tried: where the web configuration asks for a password or a certificate."
    )


class Values(Part):
    """Everything the chart can be told."""

    nameOverride: str = Field("", description="Name instead of the chart's.")
    fullnameOverride: str = Field("", description="Name of all objects instead of one derived from the release.")
    commonLabels: Texts = Field({}, description="Labels on everything.")
    image: Image = Image()
    serviceAccount: ServiceAccount = ServiceAccount()
    config: DaemonConfig = Field(
        DaemonConfig(), description="Settings of the daemon for correlator, agents and sidecars alike; see docs/configuration.md."
    )
    existingSecrets: Texts = Field(
        {},
        description="Secrets to mount: `NAME: secret` puts its keys at `/etc/firstfault/secrets/NAME/`, for `password_file` and the like.",
    )
    rules: Rules = Rules()
    transport: Transport = Transport()
    alertmanager: Alertmanager = Alertmanager()
    correlator: Correlator = Correlator()
    agent: Agent = Agent()
    sidecar: Sidecar = Sidecar()
    probes: Probes = Probes()
    monitor: Monitor = Monitor()
    prometheusRule: PrometheusRule = PrometheusRule()
    dashboards: Dashboards = Dashboards()
    networkPolicy: NetworkPolicy = NetworkPolicy()
    extraManifests: list[Object] = Field([], description="Further objects of the release; templates in them are rendered.")
    global_: Object = Field({}, alias="global", description="Helm's own: values of a parent chart.")
