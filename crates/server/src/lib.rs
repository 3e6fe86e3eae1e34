//! Roles, configuration, API, dashboard and command line of Paceline.
