//! The modules of a crate import each other in one direction, parents and children included.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{ItemMod, UseTree};

const CRATES: [&str; 9] = ["fsm-core", "fsm-macros", "fsm-store", "fsm-runtime", "fsm-cli", "fsm-console", "faults", "xtask", ""];

/// A module by its path in the crate; the root is empty.
type Module = Vec<String>;

/// The files of a crate, by their module.
fn modules(folder: &Path) -> BTreeMap<Module, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), Vec::new())];
    while let Some((folder, place)) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            let inside: Module = place.iter().cloned().chain([name.clone()]).collect();
            if path.is_dir() {
                folders.push((path, inside));
            } else if path.extension().is_some_and(|kind| kind == "rs") && name != "main" {
                found.insert(if place.is_empty() && name == "lib" { Vec::new() } else { inside }, path);
            }
        }
    }
    found
}

/// Collects the paths that a file names: in `use`, and elsewhere.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn of_use(&mut self, before: &[String], tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.of_use(&[before, &[path.ident.to_string()]].concat(), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.of_use(before, tree)),
            UseTree::Name(name) => self.0.push([before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.0.push([before, &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.0.push(before.to_owned()),
        }
    }
}

impl<'s> Visit<'s> for Paths {
    fn visit_item_use(&mut self, item: &'s syn::ItemUse) {
        self.of_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    // Tests inside a file may use whatever they test.
    fn visit_item_mod(&mut self, item: &'s ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Returns the module that a path in the module `of` names, if it is one of this crate.
fn target(of: &Module, path: &[String], modules: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let mut place = of.clone();
    let mut rest = path;
    match path.first().map(String::as_str)? {
        "crate" => {
            place.clear();
            rest = &path[1..];
        }
        "self" | "super" => {
            while let Some(word @ ("self" | "super")) = rest.first().map(String::as_str) {
                if word == "super" {
                    place.pop();
                }
                rest = &rest[1..];
            }
        }
        child if !modules.contains_key(&[place.as_slice(), &[child.to_owned()]].concat()) => return None,
        _ => {}
    }
    for word in rest {
        let inside = [place.as_slice(), std::slice::from_ref(word)].concat();
        if !modules.contains_key(&inside) {
            break;
        }
        place = inside;
    }
    (place != *of && modules.contains_key(&place)).then_some(place)
}

/// Returns the modules that each module imports. Modules for tests are left out.
fn imports(folder: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules(folder);
    let is_for_tests = |module: &Module| module.iter().any(|name| name == "tests" || name.ends_with("_tests"));
    let mut imports = BTreeMap::new();
    for (module, path) in modules.iter().filter(|(module, _)| !is_for_tests(module)) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut paths = Paths::default();
        paths.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let targets = paths.0.iter().filter_map(|path| target(module, path, &modules));
        imports.insert(module.clone(), targets.filter(|module| !is_for_tests(module)).collect::<BTreeSet<_>>());
    }
    imports
}

/// Returns the modules that can be reached from `from`.
fn reached(imports: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = imports.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if found.insert(module.clone()) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    found
}

/// Returns the cycles of a crate, each as the names of its modules.
fn cycles(name: &str, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<String> {
    let reach: BTreeMap<_, _> = imports.keys().map(|module| (module, reached(imports, module))).collect();
    let in_cycle = reach.iter().filter(|(module, reached)| reached.contains(**module));
    let cycles = in_cycle.map(|(module, reached)| {
        let whole = reached.iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(*module)));
        let names: Vec<_> = whole.map(|module| if module.is_empty() { "lib".to_owned() } else { module.join("::") }).collect();
        format!("{name}: {}", names.join(" "))
    });
    cycles.collect()
}

fn module(name: &str) -> Module {
    name.split("::").map(str::to_owned).collect()
}

#[test]
fn modules_import_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let mut found = BTreeSet::new();
    let mut count = 0;
    for name in CRATES {
        let imports = imports(&root.join(name).join("src"));
        count += imports.values().map(BTreeSet::len).sum::<usize>();
        found.extend(cycles(name, &imports));
    }
    assert!(count > 700, "{count} imports are not all of them");
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.is_empty(), "these modules import each other; move what both need into a module below them:\n{}", found.join("\n"));
}

#[test]
fn a_cycle_through_a_parent_and_over_several_modules_is_found() {
    let edges = [("a", "a::b"), ("a::b", "a"), ("c", "d"), ("d", "e"), ("e", "c"), ("f", "a")];
    let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        imports.entry(module(from)).or_default().insert(module(to));
    }
    assert_eq!(cycles("x", &imports), ["x: a a::b".to_owned(), "x: c d e".to_owned()].into());
}
