//! What a user does with a run that has ended, on a disk that fails: the run is trained longer, a
//! branch starts from its weights, and its model is exported as ONNX. Afterwards the run is whole,
//! and the same use succeeds, with the same result as on a disk that works.

use crate::check::no_leftovers;
use crate::is_complete;
use crate::scenario::{INTERVAL, STEPS, Scenario, Story, files, sums};
use crate::temporary_folder::temporary_folder;
use disk::simulated::{Fault, SimulatedDisk};
use runlog::{RunConfig, RunEvent, RunFolder, RunStore};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use trainer::internals::checkpoint;
use trainer::{
    Branch, BranchFrom, Control, DevicePreference, ExportFormat, Result, RunLength, TrainedModel,
};

/// Optimizer steps of the run that is trained longer.
const LONGER: u64 = STEPS + INTERVAL;
/// Optimizer steps of the branch.
const BRANCH_STEPS: u64 = 2;
/// Where the model is exported.
const ONNX: &str = "exports/onnx";

/// A use of a run that has ended, and what it leaves on the disk.
#[derive(Clone, Copy)]
struct LaterUse {
    perform: fn(&Scenario, &Path) -> Result<()>,
    /// What it left below the root, as text; `None` if it has not succeeded.
    result: fn(&Path) -> Option<String>,
    /// Whether the run itself stays as it was.
    leaves_run: bool,
}

fn store(root: &Path) -> RunStore {
    RunStore::open(root.join("runs"))
}

/// The run that has ended. The disk, which may fail, is not asked.
fn ended(root: &Path) -> RunFolder {
    let mut folders = fs::read_dir(root.join("runs")).unwrap().flatten();
    let found = folders.find(|entry| entry.file_name().to_string_lossy().ends_with("birds"));
    RunFolder {
        path: found.expect("the run is there").path(),
    }
}

/// Trains a run to its end on a disk that works.
fn trained(scenario: &Scenario) -> TempDir {
    let root = temporary_folder();
    let disk = SimulatedDisk::new(root.path());
    let run = store(root.path()).create("birds").unwrap();
    let mut story = Story::default();
    scenario.start(&run, &disk, &mut story).unwrap();
    scenario.resume(&run, &disk, &mut story).unwrap();
    assert_eq!(story.complaints, [""; 0]);
    root
}

fn copy_folder(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The files of a run without the lock, which is of the process.
fn run_files(run: &RunFolder) -> BTreeMap<String, Vec<u8>> {
    let mut found = files(&run.path);
    found.remove("lock");
    found
}

/// The sums of a complete checkpoint, as text.
fn saved_sums(run: &RunFolder, step: u64) -> Option<String> {
    let folder = run.path.join(RunFolder::checkpoint_name(step));
    checkpoint::verify(&folder).ok()?;
    Some(format!("{:?}", sums(&folder)?))
}

fn train_longer(scenario: &Scenario, root: &Path) -> Result<()> {
    let context = scenario.context(&Control::default());
    let length = Some(RunLength::Steps(LONGER));
    trainer::resume_to(&ended(root), length, context, &mut |_: &RunEvent| {}).map(drop)
}

fn start_branch(scenario: &Scenario, root: &Path) -> Result<()> {
    let changes = RunConfig {
        steps: Some(BRANCH_STEPS),
        ..RunConfig::default()
    };
    let branch = Branch::open(&ended(root), BranchFrom::Newest, changes)?;
    let run = store(root).create("leaves")?;
    let context = scenario.context(&Control::default());
    branch
        .train(&run, context, &mut |_: &RunEvent| {})
        .map(drop)
}

fn export_onnx(_: &Scenario, root: &Path) -> Result<()> {
    trainer::on_threads(1, || {
        let model = TrainedModel::load(&ended(root), DevicePreference::Cpu, None)?;
        model.export(&root.join(ONNX), ExportFormat::Onnx)?;
        Ok(())
    })
}

const TRAIN_LONGER: LaterUse = LaterUse {
    perform: train_longer,
    result: |root| saved_sums(&ended(root), LONGER),
    leaves_run: false,
};

const BRANCH: LaterUse = LaterUse {
    perform: start_branch,
    result: |root| {
        let runs = store(root).list().unwrap();
        let mut branches = runs.iter().filter(|run| run.id() != ended(root).id());
        branches.find_map(|run| saved_sums(run, BRANCH_STEPS))
    },
    leaves_run: true,
};

const EXPORT_ONNX: LaterUse = LaterUse {
    perform: export_onnx,
    result: |root| {
        let folder = root.join(ONNX);
        folder.is_dir().then(|| format!("{:?}", files(&folder)))
    },
    leaves_run: true,
};

/// The run, its use on a disk that works, and the number of operations of this use.
struct OnWorkingDisk {
    before: TempDir,
    result: String,
    operations: usize,
}

impl LaterUse {
    fn on_working_disk(self, scenario: &Scenario) -> OnWorkingDisk {
        let before = trained(scenario);
        let root = temporary_folder();
        copy_folder(before.path(), root.path());
        let disk = SimulatedDisk::new(root.path());
        let _installed = disk.install();
        (self.perform)(scenario, root.path()).unwrap();
        let operations = disk.operations().len();
        OnWorkingDisk {
            before,
            result: (self.result)(root.path()).expect("it has succeeded"),
            operations,
        }
    }

    /// Uses a copy of the run while one operation fails, and again afterwards.
    fn with_fault(
        self,
        scenario: &Scenario,
        calm: &OnWorkingDisk,
        fault: Fault,
        operation: usize,
    ) -> std::result::Result<(), String> {
        let root = temporary_folder();
        copy_folder(calm.before.path(), root.path());
        let run = ended(root.path());
        let (id, before) = (run.id(), run_files(&run));
        let disk = SimulatedDisk::new(root.path());
        let _installed = disk.install();
        disk.fail(fault, operation);
        let used = (self.perform)(scenario, root.path());
        let failed = disk.failed();
        disk.heal();
        let check = || -> std::result::Result<(), String> {
            if let (Fault::Interrupted, Err(error)) = (&fault, &used) {
                return Err(format!("an interruption is no failure: {error}"));
            }
            let runs = store(root.path()).list().map_err(|e| e.to_string())?;
            if !runs.iter().any(|run| run.id() == id) {
                return Err("the run is lost".to_owned());
            }
            if self.leaves_run && run_files(&run) != before {
                return Err("the run has changed".to_owned());
            }
            if (self.result)(root.path()).is_none() {
                let again = (self.perform)(scenario, root.path());
                again.map_err(|error| format!("it fails again: {error}"))?;
            }
            if (self.result)(root.path()).as_ref() != Some(&calm.result) {
                return Err("the result is another one".to_owned());
            }
            run.replay()
                .map_err(|error| format!("the run cannot be opened: {error}"))?;
            no_leftovers(&run.path)
        };
        let used = used.as_ref().err().map(ToString::to_string);
        check().map_err(|reason| format!("{failed:?}: {reason}; {used:?}"))
    }

    /// Lets each operation fail, or every nth.
    fn fail_each(self, every: usize) {
        let scenario = Scenario::new(false);
        let calm = self.on_working_disk(&scenario);
        let (mut tried, mut failures) = (0, Vec::new());
        let every = if is_complete() { 1 } else { every };
        for operation in (0..calm.operations).step_by(every) {
            for (number, fault) in Fault::ALL.into_iter().enumerate() {
                if !is_complete() && operation / every % Fault::ALL.len() != number {
                    continue;
                }
                tried += 1;
                if let Err(reason) = self.with_fault(&scenario, &calm, fault, operation) {
                    failures.push(format!("{fault:?} at operation {operation}, {reason}"));
                }
            }
        }
        println!("{} operations, {tried} failures tried", calm.operations);
        assert!(calm.operations > 5, "{}", calm.operations);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

/// Without `EBB_DISK_FAULTS=all`, only some operations fail.
#[test]
fn any_operation_of_a_longer_training_may_fail() {
    TRAIN_LONGER.fail_each(3);
}

/// Without `EBB_DISK_FAULTS=all`, only some operations fail.
#[test]
fn any_operation_of_a_branch_may_fail() {
    BRANCH.fail_each(3);
}

#[test]
fn any_operation_of_an_onnx_export_may_fail() {
    EXPORT_ONNX.fail_each(1);
}
