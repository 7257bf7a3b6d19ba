//! The names of the service manager's units.

/// The unit of this server process. After a rename of the group the unit keeps its old name.
pub fn of_this_process() -> Option<String> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    in_cgroups(&cgroups).map(str::to_owned)
}

/// The unit of a group's server.
pub fn of_group(group: &str) -> String {
    format!("rowen@{group}.service")
}

fn in_cgroups(cgroups: &str) -> Option<&str> {
    let names = cgroups.lines().flat_map(|line| line.rsplit('/'));
    names.into_iter().find(|name| name.starts_with("rowen@") && name.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_names_the_unit() {
        assert_eq!(in_cgroups("0::/system.slice/system-rowen.slice/rowen@vg-0.service\n"), Some("rowen@vg-0.service"));
        let old = "2:cpu:/\n1:name=systemd:/system.slice/rowen@a.service\n0::/\n";
        assert_eq!(in_cgroups(old), Some("rowen@a.service"));
        assert_eq!(in_cgroups("0::/user.slice/session-1.scope\n"), None);
    }
}
