//! Which resources of Kubernetes are seen to, and by which of several operators.

/// The operator's part.
#[derive(Debug, Clone, clap::Args)]
pub struct OperatorConfig {
    /// The namespace whose Destination resources are seen to; left out, the one
    /// that this pod, or the kubeconfig, is in.
    #[arg(long, env = "PACELINE_OPERATOR_NAMESPACE", value_name = "NAME")]
    pub operator_namespace: Option<String>,

    /// The Lease that says which of several operators acts.
    #[arg(long, env = "PACELINE_OPERATOR_LEASE", value_name = "NAME")]
    #[arg(default_value = "paceline-operator")]
    pub operator_lease: String,

    /// What this one is called there, such as the pod's name; left out, a random
    /// name.
    #[arg(long, env = "PACELINE_OPERATOR_IDENTITY", value_name = "NAME")]
    pub operator_identity: Option<String>,
}
