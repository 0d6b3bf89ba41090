//! Conversations that go on from earlier ones, and the network without its adapters.

use super::*;
use crate::machine_sources::{MemoryScript, ScriptBy};
use candle_core::{Device, Tensor};
use models::{is_adapter, load_adapters};
use runlog::RunConfig;
use std::collections::HashMap;
use std::path::PathBuf;

fn folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../models/tests/fixtures/published/chat")
}

fn model() -> ChatModel {
    let model = ChatModel::from_folder(&folder(), None, DevicePreference::Cpu, None, None);
    model.expect("it is a chat model")
}

/// Random enough that another seed or conversation gives another answer.
fn options(tokens: usize) -> GenerationOptions {
    GenerationOptions {
        tokens,
        temperature: 2.0,
        seed: 3,
        ..GenerationOptions::default()
    }
}

fn answer(chat: &mut Chat, message: &str, tokens: usize) -> ChatReply {
    let goes_on = |_: &str| ControlFlow::Continue(());
    let reply = chat.answer(message, &options(tokens), &Cancel::default(), goes_on);
    reply.expect("the CPU does not fail")
}

#[test]
fn a_conversation_goes_on_from_earlier_turns() {
    let model = model();
    let begun = || model.start(Some("Brief."), 16).expect("it can chat");
    let mut whole = begun();
    let first = answer(&mut whole, "One", 16);
    let second = answer(&mut whole, "Two", 16);
    let turn = ChatTurn {
        message: "One".to_owned(),
        answer: first.answer,
    };
    let mut later = begun().after(vec![turn]);
    assert_eq!(answer(&mut later, "Two", 16), second);
}

#[test]
fn an_answer_of_the_most_tokens_is_cut() {
    let model = model();
    let mut chat = model.start(None, 1).expect("it can chat");
    let reply = answer(&mut chat, "One", 1);
    assert!(reply.is_cut, "{reply:?}");
    assert_eq!(reply.notes, ["the answer was cut after 1 token"]);
}

/// The chat model with adapters whose values are all one, so that they change every score.
fn adapted() -> FolderWeights {
    let config = RunConfig {
        from: Some(folder()),
        adapter_rank: Some(2),
        ..RunConfig::default()
    };
    let pretrained = crate::pretrained::open(&config);
    let pretrained = pretrained.expect("it can be opened").expect("there is one");
    let loaded = FolderWeights::load(&pretrained, DevicePreference::Cpu, None);
    let (mut weights, _) = loaded.expect("it fits");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let parameters = weights.parameters_mut();
    let adapters = parameters.iter().filter(|p| is_adapter(&p.name));
    let ones: HashMap<String, Tensor> = adapters
        .map(|p| {
            let ones = Tensor::ones(p.tensor.dims(), p.tensor.dtype(), &Device::Cpu);
            (p.name.clone(), ones.expect("it fits"))
        })
        .collect();
    assert!(!ones.is_empty(), "it has adapters");
    candle_core::safetensors::save(&ones, file.path()).expect("it can be written");
    load_adapters(parameters, file.path()).expect("the names are the same");
    weights
}

#[test]
fn a_network_without_its_adapters_is_the_one_that_they_were_added_to() {
    let base = model();
    let adapted = ChatModel {
        weights: LanguageWeights::Folder(Box::new(adapted())),
        ..model()
    };
    let reply = |chat: Chat| answer(&mut { chat }, "One", 16).answer;
    let started = |model| ChatModel::start(model, None, 16).expect("it can chat");
    let expected = reply(started(&base));
    assert_eq!(reply(started(&adapted).without_adapters()), expected);
    assert_ne!(reply(started(&adapted)), expected, "the adapters count");
}

/// The model on a machine of 64 GB where other apps use this many GB, one reading each.
fn model_beside(others_gb: &[u64]) -> ChatModel {
    const GB: u64 = 1 << 30;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("script.jsonl");
    let lines = others_gb.iter().enumerate().map(|(line, others)| {
        format!(
            "{{\"at_ms\":{},\"total_bytes\":{},\"others_bytes\":{}}}\n",
            500 * line,
            64 * GB,
            others * GB
        )
    });
    std::fs::write(&path, lines.collect::<String>()).expect("a writable folder");
    let script = Some(MemoryScript {
        path,
        by: ScriptBy::Decision,
    });
    let machine = Machine {
        script,
        ..Machine::default()
    };
    ChatModel {
        memory: ContextMemory::open(&machine, &Device::Cpu).expect("a script"),
        ..model()
    }
}

#[test]
fn without_memory_a_message_is_refused_and_the_conversation_stays() {
    let model = model_beside(&[64, 1, 1]);
    let mut chat = model.start(None, 16).expect("it can chat");
    let refused = answer(&mut chat, "One", 16);
    let reason = refused.refusal.expect("there is no memory");
    assert!(
        reason.contains("because only 0 bytes of memory is available; shorten it, or close other"),
        "{reason}"
    );
    let later = answer(&mut chat, "One", 16);
    assert_eq!(later.refusal, None, "there is memory again");
}

#[test]
fn an_answer_ends_when_other_apps_need_the_memory() {
    let mut readings = vec![1];
    readings.extend([64; 20]);
    let model = model_beside(&readings);
    let mut chat = model.start(None, 300).expect("it can chat");
    let reply = answer(&mut chat, "One", 300);
    assert_eq!(
        reply.notes,
        ["the answer was cut after 32 tokens, because other apps need the memory"]
    );
    assert!(!reply.is_cut, "more tokens would not help");
}

#[test]
fn a_context_without_memory_is_refused_with_what_would_fit() {
    let model = model();
    let network = model
        .weights
        .parts()
        .expect("it is a language model")
        .network;
    let room = Room {
        tokens: 700,
        limited_by_bytes: Some(3 << 20),
    };
    assert!(room.expect_context(network, None).is_ok());
    let message = |room: Room, wanted| {
        let refused = room.expect_context(network, wanted);
        refused.expect_err("it does not fit").to_string()
    };
    let wanted = message(room, Some(4_000));
    // 8 bytes for each of 2 blocks, keys and values, 2 heads and 4 channels.
    assert!(
        wanted.contains("needs 1.0 MB of memory") && wanted.contains("enough for 700 tokens"),
        "{wanted}"
    );
    let none = message(Room { tokens: 63, ..room }, None);
    assert!(
        none.contains("not enough memory for a conversation"),
        "{none}"
    );
    let unlimited = Room {
        limited_by_bytes: None,
        ..room
    };
    assert!(unlimited.expect_context(network, Some(4_000)).is_ok());
}
