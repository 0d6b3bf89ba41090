//! Which classes of a dataset are used, and under which names.

use crate::error::DatasetError;
use crate::types::Class;
use crate::user_messages::listed;
use format::counted;

/// Which classes are used, and under which names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassSelection {
    /// Names of the classes that are left out.
    pub leave_out: Vec<String>,
    /// Classes that become one.
    pub merge: Vec<MergedClass>,
    /// Whether a name of no class is passed over. Otherwise it is an error.
    pub allow_unknown: bool,
}

/// A class that is made of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedClass {
    /// Its name.
    pub name: String,
    /// The names of the others.
    pub classes: Vec<String>,
}

impl ClassSelection {
    /// Whether all classes stay as they are.
    pub fn is_all(&self) -> bool {
        self.leave_out.is_empty() && self.merge.is_empty()
    }

    /// The new name of a class; `None` if it is left out.
    pub(crate) fn renamed(&self, class: &str) -> Option<String> {
        if self.leave_out.iter().any(|name| name == class) {
            return None;
        }
        let merged = self.merge.iter();
        let merged = merged.filter(|merged| merged.classes.iter().any(|name| name == class));
        let name = merged.map(|merged| merged.name.as_str()).next();
        Some(name.unwrap_or(class).to_owned())
    }

    /// Refuses a name of no class.
    pub(crate) fn check(&self, classes: &[Class]) -> Result<(), DatasetError> {
        let merged = self.merge.iter().flat_map(|merged| &merged.classes);
        let unknown = self
            .leave_out
            .iter()
            .chain(merged)
            .find(|name| !classes.iter().any(|class| class.name == **name));
        match unknown.filter(|_| !self.allow_unknown) {
            None => Ok(()),
            Some(class) => {
                let names: Vec<String> = classes.iter().map(|class| class.name.clone()).collect();
                let classes = if names.is_empty() {
                    "no classes".to_owned()
                } else {
                    listed(&names)
                };
                Err(DatasetError::UnknownClass {
                    class: class.clone(),
                    classes,
                })
            }
        }
    }

    /// Sentences about what is left out and merged. `noun` names one sample.
    pub(crate) fn describe(&self, classes: &[Class], noun: &str) -> Vec<String> {
        let left: Vec<&Class> = classes
            .iter()
            .filter(|class| self.renamed(&class.name).is_none())
            .collect();
        let mut notes = Vec::new();
        if !left.is_empty() {
            let samples = left.iter().map(|class| u64::from(class.samples())).sum();
            let names: Vec<String> = left.iter().map(|class| class.name.clone()).collect();
            notes.push(format!(
                "{} ({}) {} left out: {}.",
                counted(left.len() as u64, "class", "classes"),
                counted(samples, noun, &format!("{noun}s")),
                if left.len() == 1 { "is" } else { "are" },
                listed(&names)
            ));
        }
        for merged in &self.merge {
            let known = |name: &&String| classes.iter().any(|class| class.name == **name);
            let names: Vec<String> = merged.classes.iter().filter(known).cloned().collect();
            if !names.is_empty() {
                notes.push(format!(
                    "The class {} combines the {noun}s of {}.",
                    merged.name,
                    listed(&names)
                ));
            }
        }
        notes
    }
}
