//! Modules import in one direction: no cycles among the modules of a crate, read from `use` lines
//! and `crate::` paths.

use crate::sources::{Source, rust_sources};
use crate::{none, root};
use std::collections::{BTreeMap, BTreeSet};

/// A module: its path inside the crate, `["text", "rows"]`; the crate root is empty.
type Path = Vec<String>;

/// The modules of one crate, and what they import.
#[derive(Default)]
struct Modules {
    all: BTreeSet<Path>,
    /// For each module, the child that a re-exported name comes from.
    reexports: BTreeMap<(Path, String), Path>,
    /// Which module imports which path.
    imports: Vec<(Path, Path)>,
}

/// The module that a file of a crate holds, from its path below `src`.
fn module_of(path: &str) -> Path {
    let path = path.trim_end_matches(".rs");
    let parts: Path = path.split('/').map(str::to_owned).collect();
    if parts == ["lib"] || parts == ["main"] {
        return Path::new();
    }
    parts
}

/// The paths of one `use` declaration, with braces expanded: `a::{b, c::d}` gives `a::b` and
/// `a::c::d`.
fn expanded(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree);
        return vec![name.trim().to_owned()];
    };
    let prefix = &tree[..open];
    let inner = tree[open + 1..].trim_end_matches('}');
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| {
            // A nested group that was cut at its closing brace gets it back.
            let open = part.matches('{').count();
            let open = open.saturating_sub(part.matches('}').count());
            expanded(&format!("{part}{}", "}".repeat(open)))
        })
        .map(|path| format!("{prefix}{path}"))
        .collect()
}

/// The code of a file without comments, strings and its unit tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Absolute paths that a file names, each as its segments below the crate root, and whether it is
/// re-exported from there.
fn named_paths(module: &Path, code: &str) -> Vec<(Path, bool)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].rsplit('\n').next().unwrap_or("").trim();
        let is_use = begins.is_empty() || begins.starts_with("pub");
        let after = &rest[at + 4..];
        let end = after.find(';').unwrap_or(after.len());
        if is_use {
            let reexport = begins.starts_with("pub");
            let paths = expanded(&after[..end].replace('\n', " "));
            found.extend(paths.into_iter().map(|path| (path, reexport)));
            rest = &after[end..];
        } else {
            rest = after;
        }
    }
    for (at, _) in code.match_indices("crate::") {
        let path = code[at..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        found.push((path.clone().next().unwrap_or_default().to_owned(), false));
    }
    let absolute = |(path, reexport): (String, bool)| {
        let mut segments: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut from = module.clone();
        match *segments.first()? {
            "crate" => from.clear(),
            "self" => {}
            "super" => {
                from.pop()?;
                while segments.get(1) == Some(&"super") {
                    segments.remove(1);
                    from.pop()?;
                }
            }
            _ if reexport => segments.insert(0, "self"),
            _ => return None,
        }
        from.extend(segments[1..].iter().map(|&part| part.to_owned()));
        Some((from, reexport))
    };
    found.into_iter().filter_map(absolute).collect()
}

fn modules(sources: &[(String, String)]) -> Modules {
    let mut modules = Modules::default();
    for (path, _) in sources {
        modules.all.insert(module_of(path));
    }
    for (path, text) in sources {
        let module = module_of(path);
        for (named, reexport) in named_paths(&module, &code(text)) {
            if reexport && let Some(name) = named.last() {
                let key = (module.clone(), name.clone());
                modules
                    .reexports
                    .insert(key, named[..named.len() - 1].to_vec());
            }
            modules.imports.push((module.clone(), named));
        }
    }
    modules
}

impl Modules {
    /// The module of a named path, through re-exports.
    fn resolve(&self, named: &Path) -> Path {
        let mut module = Path::new();
        for (index, segment) in named.iter().enumerate() {
            let mut child = module.clone();
            child.push(segment.clone());
            if self.all.contains(&child) {
                module = child;
                continue;
            }
            let last = index + 1 == named.len();
            if let (true, Some(from)) =
                (last, self.reexports.get(&(module.clone(), segment.clone())))
                && *from != module
                && from.starts_with(&module)
            {
                let mut deeper = from.clone();
                deeper.push(segment.clone());
                return self.resolve(&deeper);
            }
            break;
        }
        module
    }

    /// For each parent module, which of its children import which.
    fn siblings(&self) -> BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> {
        let mut graphs: BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, named) in &self.imports {
            let to = self.resolve(named);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // A module and one inside it belong together.
            if common < from.len() && common < to.len() {
                let graph = graphs.entry(from[..common].to_vec()).or_default();
                let edges = graph.entry(from[common].clone()).or_default();
                edges.insert(to[common].clone());
            }
        }
        graphs
    }
}

/// The modules that can be reached from one, and from which it can be reached: its cycle, including
/// itself.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>, start: &str) -> BTreeSet<String> {
    let reached = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(at) = open.pop() {
            for next in graph.get(&at).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let forward = reached(start);
    let back = forward
        .iter()
        .filter(|other| reached(other).contains(start));
    back.cloned().collect()
}

/// Cycles of a crate, each as a sentence. `sources` are paths below `src`, and texts.
fn cycles(name: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut complaints = BTreeSet::new();
    for (parent, graph) in modules(sources).siblings() {
        for start in graph.keys() {
            let cycle = cycle(&graph, start);
            if cycle.len() > 1 {
                let members = cycle.into_iter().collect::<Vec<_>>().join(", ");
                let parent = parent.join("::");
                complaints.insert(format!("{name}::{parent}: {members} import each other"));
            }
        }
    }
    complaints.into_iter().collect()
}

/// The sources of one crate: paths below its `src` folder, unit test files left out.
fn crate_sources(folder: &str, all: &[Source]) -> Vec<(String, String)> {
    let prefix = format!("{folder}/");
    let own = all.iter().filter_map(|source| {
        let path = source.path.strip_prefix(&prefix)?;
        let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
        (!is_test).then(|| (path.to_owned(), source.text.clone()))
    });
    own.collect()
}

#[test]
fn modules_of_a_crate_import_in_one_direction() {
    let all = rust_sources();
    let mut complaints = cycles("ebb", &crate_sources("src-tauri", &all));
    for entry in std::fs::read_dir(root().join("crates")).expect("crates can be listed") {
        let name = entry.expect("an entry can be read").file_name();
        let name = name.to_string_lossy();
        let sources = crate_sources(&format!("crates/{name}/src"), &all);
        assert!(!sources.is_empty(), "{name} has sources");
        complaints.extend(cycles(&name, &sources));
    }
    none(&complaints);
}

#[test]
fn a_planted_cycle_is_named() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let direct = [
        file("lib.rs", "mod a;\nmod b;\n"),
        file("a.rs", "use crate::b::{One, two::Three};\n"),
        file("b.rs", "use crate::a;\n"),
    ];
    assert_eq!(
        cycles("planted", &direct),
        ["planted::: a, b import each other"]
    );
    let through_a_reexport = [
        file("lib.rs", "mod a;\nmod b;\npub use a::One;\n"),
        file("a.rs", "fn f() { crate::b::two() }\n"),
        file("b.rs", "use crate::One;\n"),
    ];
    assert_eq!(cycles("planted", &through_a_reexport).len(), 1);
    let nested = [
        file("lib.rs", "mod a;\n"),
        file("a.rs", "mod b;\nmod c;\n"),
        file("a/b.rs", "use super::c::One;\n"),
        file("a/c.rs", "use super::b::Two;\n"),
    ];
    assert_eq!(cycles("planted", &nested).len(), 1);
    let in_order = [
        file("lib.rs", "mod a;\nmod b;\n"),
        file("a.rs", "use crate::b::One;\n"),
        file(
            "b.rs",
            "// use crate::a;\n#[cfg(test)]\nmod tests {\nuse crate::a;\n}\n",
        ),
    ];
    assert_eq!(cycles("planted", &in_order), Vec::<String>::new());
}
