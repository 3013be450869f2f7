//! The six core workloads of YCSB, built into the program.

/// The name and property file of a core workload, found by its name or its letter (`a` to `f`, in
/// either case).
///
/// ```
/// use gossamer_kv::ycsb::core_workloads::builtin;
/// assert_eq!(builtin("C").unwrap().0, "workloadc");
/// assert_eq!(builtin("workloadc"), builtin("C"));
/// assert!(builtin("g").is_none());
/// ```
pub fn builtin(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name.strip_prefix("workload").unwrap_or(name) {
        "a" | "A" => ("workloada", include_str!("../../workloads/workloada")),
        "b" | "B" => ("workloadb", include_str!("../../workloads/workloadb")),
        "c" | "C" => ("workloadc", include_str!("../../workloads/workloadc")),
        "d" | "D" => ("workloadd", include_str!("../../workloads/workloadd")),
        "e" | "E" => ("workloade", include_str!("../../workloads/workloade")),
        "f" | "F" => ("workloadf", include_str!("../../workloads/workloadf")),
        _ => return None,
    })
}
