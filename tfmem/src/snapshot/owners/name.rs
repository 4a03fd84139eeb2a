//! From the graph to what a person is told: the owner of a buffer, its name and container, the way to it.

use super::{
    graph::{Graph, Node, Place, Reference},
    kept,
};
use crate::{
    event::HolderKind,
    snapshot::{objects::Kind, text_in},
    target::memory::Memory,
};

/// Who holds something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub kind: HolderKind,
    /// What it is, in a word.
    pub what: String,
    /// Class or type.
    pub class: String,
    /// Of a variable, a table.
    pub name: Option<String>,
    /// The container of the resource manager that it is in.
    pub container: Option<String>,
    /// The device that the container is of, by its address.
    pub device: Option<u64>,
    /// From the buffer to the owner and beyond.
    pub chain: Vec<String>,
}

const DEEPEST: usize = 8;
/// A way through so many nodes is not worth more.
const MOST_STEPS: usize = 512;

/// The owner that says most, of all that hold the node.
#[must_use]
pub fn owner(memory: &impl Memory, graph: &Graph, node: usize, count: u64) -> Option<Owner> {
    let path = best(graph, node, count)?;
    let last = path.last()?;
    let held = graph.nodes.get(last.from)?;
    let mut owner = match &held.place {
        Place::Object(kind, class) => {
            Owner { kind: kind.holder(), what: kind.noun().to_owned(), class: class.to_string(), ..Owner::default() }
        }
        Place::Python(name) => Owner {
            kind: HolderKind::Python,
            what: "Python object".to_owned(),
            class: name.as_deref().unwrap_or("not known").to_owned(),
            ..Owner::default()
        },
        Place::Static(file) => {
            Owner { what: "static data".to_owned(), class: file_name(file).to_owned(), ..Owner::default() }
        }
        Place::Part => Owner { what: "block without a class".to_owned(), class: "-".to_owned(), ..Owner::default() },
    };
    owner.chain = path.iter().filter_map(|step| Some(shown(graph.nodes.get(step.from)?, step.at))).collect();
    // A variable says its name itself, behind its tensor.
    if matches!(held.place, Place::Object(Kind::Variable, _)) {
        owner.name = text_in::std_string(memory, last.at + 8).map(|name| name.trim_end_matches('/').to_owned());
    }
    add_holder(memory, graph, last.from, &mut owner);
    Some(owner)
}

/// What holds the node itself: a slot of a container under a name, or a Python object.
pub fn add_holder(memory: &impl Memory, graph: &Graph, node: usize, owner: &mut Owner) {
    let Some(held) = graph.nodes.get(node) else { return };
    for slot in &held.references {
        let Some(part) = graph.nodes.get(slot.from) else { continue };
        match &part.place {
            Place::Python(Some(class)) if matches!(held.place, Place::Object(Kind::Handle, _)) => {
                owner.kind = HolderKind::Python;
                owner.what = "Python object".to_owned();
                owner.class = class.to_string();
                owner.chain.push(shown(part, slot.at));
                add_place(memory, graph, part, owner);
                return;
            }
            Place::Part => {
                // A resource lies in its container beside the hash and the text of its name.
                let Some(name) = slot_name(memory, slot.at) else { continue };
                let Some((container, text)) = container(memory, graph, slot.from) else { continue };
                owner.chain.extend([format!("slot \"{name}\""), format!("container \"{text}\"")]);
                if let Some(device) = device(graph, container.from) {
                    owner.device = graph.nodes.get(device.from).map(|node| node.range.start);
                    owner.chain.extend(graph.nodes.get(device.from).map(|node| shown(node, device.at)));
                }
                if owner.name.as_ref().is_none_or(String::is_empty) {
                    owner.name = Some(name);
                }
                owner.container = Some(text);
                return;
            }
            _ => {}
        }
    }
}

/// Where a Python object is kept: under a name, or in something with a type.
fn add_place(memory: &impl Memory, graph: &Graph, object: &Node, owner: &mut Owner) {
    let named = object.references.iter().find_map(|reference| kept::name(memory, reference.at));
    if let Some(name) = named {
        owner.chain.push(format!("kept as \"{name}\""));
        owner.name = Some(name);
        return;
    }
    let places =
        object.references.iter().filter_map(|reference| graph.nodes.get(reference.from).zip(Some(reference.at)));
    let typed =
        places.filter(|(place, _)| matches!(place.place, Place::Python(Some(_)))).map(|(place, at)| shown(place, at));
    owner.chain.extend(typed.take(1));
}

/// Hash, length and address of the name lie before the resource's address.
fn slot_name(memory: &impl Memory, at: u64) -> Option<String> {
    text_in::view(memory, at.checked_sub(16)?)
}

/// From the slots of a container to the container, and to its slot beside its name. Other maps look alike: the one of a
/// resource manager hangs on a device.
fn container(memory: &impl Memory, graph: &Graph, slots: usize) -> Option<(Reference, String)> {
    let to_slots = graph.nodes.get(slots)?.references.iter().filter_map(|slots| graph.nodes.get(slots.from));
    let named = to_slots.flat_map(|slots| &slots.references).filter_map(|slot| {
        let name = slot.at.checked_sub(32).and_then(|at| text_in::std_string(memory, at))?;
        Some((*slot, name))
    });
    named.into_iter().find(|(slot, _)| device(graph, slot.from).is_some())
}

/// The device whose resource manager it is.
fn device(graph: &Graph, node: usize) -> Option<Reference> {
    let mut at = node;
    for _ in 0..4 {
        let references = &graph.nodes.get(at)?.references;
        let device = references.iter().find(|reference| {
            let node = graph.nodes.get(reference.from);
            node.is_some_and(|node| matches!(node.place, Place::Object(Kind::Device, _)))
        });
        if let Some(device) = device {
            return Some(*device);
        }
        at = references.first()?.from;
    }
    None
}

/// The shortest way to the holder that says most. `count`: how many hold it, by its own count. Where as many objects with a
/// class point to it, what else does is a word that was left in a block from its last use.
fn best(graph: &Graph, node: usize, count: u64) -> Option<Vec<Reference>> {
    let is_object = |reference: &Reference| {
        matches!(graph.nodes.get(reference.from).map(|from| &from.place), Some(Place::Object(..)))
    };
    let objects = graph.nodes.get(node)?.references.iter().filter(|reference| is_object(reference)).count() as u64;
    let objects_alone = count > 0 && objects >= count;
    let mut best: Option<(u32, Vec<Reference>)> = None;
    let mut seen = vec![node];
    let mut queue: std::collections::VecDeque<(usize, Vec<Reference>)> = [(node, Vec::new())].into();
    let mut steps = 0;
    while let Some((at, path)) = queue.pop_front() {
        for reference in &graph.nodes.get(at)?.references {
            steps += 1;
            if at == node && objects_alone && !is_object(reference) {
                continue;
            }
            if steps > MOST_STEPS || seen.contains(&reference.from) {
                continue;
            }
            seen.push(reference.from);
            let Some(from) = graph.nodes.get(reference.from) else { continue };
            let mut path = path.clone();
            path.push(*reference);
            let weight = weight(from);
            if best.as_ref().is_none_or(|(known, _)| weight > *known) {
                best = Some((weight, path.clone()));
            }
            let on = matches!(from.place, Place::Part | Place::Object(Kind::Buffer | Kind::Slice, _));
            if on && path.len() < DEEPEST {
                queue.push_back((reference.from, path));
            }
        }
    }
    best.map(|(_, path)| path)
}

fn weight(node: &Node) -> u32 {
    match &node.place {
        Place::Object(kind, _) => kind.weight(),
        Place::Python(Some(_)) => 4,
        Place::Static(_) | Place::Python(None) => 2,
        Place::Part => 1,
    }
}

fn shown(node: &Node, at: u64) -> String {
    let offset = at - node.range.start;
    match &node.place {
        Place::Object(_, class) => format!("{class}+{offset}"),
        Place::Part => format!("[{}]+{offset}", node.range.end - node.range.start),
        Place::Python(name) => format!("Python {}+{offset}", name.as_deref().unwrap_or("object")),
        Place::Static(file) => format!("static data of {}", file_name(file)),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
