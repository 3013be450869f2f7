//! `MPI_Fetch_and_op` between processes of one thread each, by Open MPI: a small program in C, which is
//! built on first use, with the same draws and as many operations under way.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use tempfile::TempDir;

use super::draws::Plan;

const SOURCE: &str = include_str!("fetch_and_op.c");
const INSTALL: &str = "Debian's packages openmpi-bin and libopenmpi-dev";

/// The program, once it is built.
#[derive(Clone, Debug, Default)]
pub(super) struct Mpi(Rc<OnceCell<TempDir>>);

impl Mpi {
    /// The case of a plan.
    pub(super) fn case(&self, plan: Plan) -> Case {
        let mpi = self.clone();
        let name = "mpi/MPI_Fetch_and_op, 64 outstanding";
        Case::new(name, Unit::Mops, move |sampler| mpi.measure(plan, sampler))
    }

    /// The folder with the program.
    fn folder(&self) -> Result<&Path, CaseError> {
        if self.0.get().is_none() {
            let folder = TempDir::with_prefix("core-bench-mpi-")?;
            let source = folder.path().join("fetch_and_op.c");
            fs::write(&source, SOURCE)?;
            let mut build = Command::new("mpicc");
            build.args(["-O3", "-o"]).arg(folder.path().join("fetch_and_op")).arg(source);
            output(&mut build)?;
            // It was empty.
            let _ = self.0.set(folder);
        }
        Ok(self.0.get().expect("it was just set").path())
    }

    fn measure(&self, plan: Plan, sampler: &Sampler) -> Result<Reading, CaseError> {
        let folder = self.folder()?;
        let draws = folder.join("draws");
        for rank in 0..plan.threads {
            let bytes: Vec<u8> = plan.draws(rank).into_iter().flat_map(u32::to_le_bytes).collect();
            fs::write(folder.join(format!("draws.{rank}")), bytes)?;
        }
        let mut run = Command::new("mpirun");
        // It refuses to run as root otherwise.
        run.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let is_pinned = plan.threads <= 2;
        run.args(["--bind-to", if is_pinned { "core" } else { "none" }, "--oversubscribe"]);
        run.args(["-n", &plan.threads.to_string()]).arg(folder.join("fetch_and_op")).arg(draws);
        run.args([plan.objects.to_string(), sampler.time.as_secs_f64().to_string()]);
        let printed = output(&mut run)?;
        let mut figures = printed.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(per_second)), Some(Ok(lost))) = (figures.next(), figures.next()) else {
            return Err(CaseError::Failed(format!("fetch_and_op printed {printed:?}")));
        };
        if is_pinned {
            undisturbed(lost)?;
        }
        Ok(Reading::of(per_second / 1e6))
    }
}

/// Runs a command of Open MPI; returns what it printed.
fn output(command: &mut Command) -> Result<String, CaseError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CaseError::Absent(format!("{name} ({INSTALL})")),
        _ => error.into(),
    })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(CaseError::Failed(format!("{name}: {}: {errors}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
