//! Tests of the model card.

use super::*;

fn data() -> CardData {
    CardData {
        name: "chats.jsonl".to_owned(),
        noun: "conversation",
        train: 1_200,
        held_out: 300,
        test: 0,
        classes: Vec::new(),
        targets: Vec::new(),
    }
}

/// Fine-tuned from a base with this name and licence.
fn tuned(name: Option<&str>, licence: Option<&str>) -> CardFacts {
    CardFacts {
        network: "Qwen3".to_owned(),
        task: Task::LanguageModel,
        is_regression: false,
        base: Some(CardBase {
            folder: "qwen3-0.6b".to_owned(),
            about: BaseDescription {
                name: name.map(str::to_owned),
                licence: licence.map(str::to_owned),
            },
        }),
        trained_part: "adapters of rank 16".to_owned(),
        format: ExportFormat::Adapters,
        has_adapters: true,
        data: data(),
        settings: vec![("adapter_rank".to_owned(), "16".to_owned())],
        evaluation: Some(CardEvaluation {
            step: 1_000,
            of_what: "300 windows of the held-out split.".to_owned(),
            columns: vec!["measure", "before", "after"],
            rows: vec![["Perplexity", "24.10", "6.71"].map(str::to_owned).to_vec()],
            metrics: String::new(),
        }),
        is_mixed: false,
    }
}

#[test]
fn a_card_begins_with_the_yaml_of_the_hub() {
    let card = tuned(Some("Qwen/Qwen3-0.6B"), Some("apache-2.0")).card("PeftModel(FOLDER)");
    let expected = "---\nlicense: apache-2.0\nbase_model: Qwen/Qwen3-0.6B\nbase_model_relation: adapter\nlibrary_name: peft\npipeline_tag: text-generation\ntags:\n- ebb\n- lora\n---\n\n# Qwen3, fine-tuned on `chats.jsonl`\n";
    assert!(card.starts_with(expected), "{card}");
    for part in [
        "It started from `Qwen/Qwen3-0.6B`; adapters of rank 16 were trained.",
        "This folder holds only the adapters",
        "`chats.jsonl`: 1,200 conversations for training, 300 held out.",
        "| `adapter_rank` | `16` |",
        "The weights of step 1,000 on 300 windows of the held-out split.",
        "| measure | before | after |\n|---|---|---|\n| Perplexity | 24.10 | 6.71 |",
        "The licence of the base is `apache-2.0`.",
        "    PeftModel(FOLDER)\n",
        concat!("Ebb ", env!("CARGO_PKG_VERSION"), "."),
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
}

#[test]
fn a_licence_that_the_hub_does_not_know_is_called_other() {
    let facts = tuned(Some("a/b"), Some("qwen-research: \"1\""));
    let yaml = facts.front_matter();
    let expected = "license: other\nlicense_name: \"qwen-research: \\\"1\\\"\"\n";
    assert!(yaml.contains(expected), "{yaml}");
}

#[test]
fn what_is_not_known_is_left_out_of_the_yaml_and_named_in_the_text() {
    let card = tuned(None, None).card("");
    let (yaml, text) = card[4..].split_once("---\n").expect("it has both");
    assert!(
        !yaml.contains("license") && !yaml.contains("base_model"),
        "{yaml}"
    );
    assert!(!yaml.contains("language:"), "{yaml}");
    assert!(
        text.contains("It started from the folder `qwen3-0.6b`;"),
        "{text}"
    );
    assert!(
        text.contains("The licence of the base is not known"),
        "{text}"
    );
}

#[test]
fn a_classifier_from_random_weights_names_its_classes() {
    let facts = CardFacts {
        network: "ConvNet".to_owned(),
        task: Task::ImageClassification,
        base: None,
        format: ExportFormat::HuggingFace,
        has_adapters: false,
        data: CardData {
            name: "birds | `rm`\n# x".to_owned(),
            noun: "image",
            test: 7,
            classes: (0..MAX_CLASSES + 2).map(|it| format!("c{it}")).collect(),
            ..data()
        },
        evaluation: None,
        is_mixed: true,
        ..tuned(None, None)
    };
    let card = facts.card("");
    for part in [
        "pipeline_tag: image-classification",
        "# ConvNet, trained on `birds / 'rm' # x`\n",
        "1,200 images for training, 300 held out, 7 for testing.",
        "Classes: `c0`, `c1`, ",
        "`c29` and 2 more.",
        "a simple baseline together",
        "These weights were not evaluated.",
        "This model has no licence yet.",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert!(!card.contains("lora"), "{card}");
    let regression = CardFacts {
        is_regression: true,
        ..facts
    };
    assert!(!regression.front_matter().contains("pipeline_tag"));
}
