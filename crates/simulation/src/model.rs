//! Models of the ports: what the drivers promise, in plain maps. They pass
//! the same contract suites as the drivers.
