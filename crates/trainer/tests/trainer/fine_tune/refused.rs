//! Fine-tuning with conflicting settings or a damaged folder is refused, and the error names a
//! setting that works.

use super::{Tuned, vit};
use crate::folders::{assert_error_contains, copied, fixture};
use candle_core::{DType, Device};
use models::pretrained::FineTuningSettings;
use runlog::{AdapterScaling, Quantize, RunConfig};
use trainer::internals::TrainState;

#[test]
fn conflicting_settings_are_refused() {
    let check = |way: Tuned, words: &[&str]| {
        assert_error_contains(
            trainer::pretrained::open(&way.config(&fixture(way.from))),
            words,
        )
    };
    check(
        vit(Some("last:3"), None, None),
        &["train_only", "last:1 to last:2"],
    );
    check(vit(Some("all"), Some(4), None), &["frozen weights"]);
    check(vit(None, None, Some(Quantize::Eight)), &["--adapter RANK"]);
    check(
        Tuned {
            from: "gpt2",
            train_only: Some("head"),
            ..Tuned::default()
        },
        &["last:N, or use --adapter"],
    );
    check(
        Tuned {
            from: "resnet-basic",
            adapter: Some(2),
            ..Tuned::default()
        },
        &["adapter_rank", "convolutions"],
    );
    let tail = FineTuningSettings {
        from: Some(fixture("vit")),
        train_only: Some("tail".to_owned()),
        ..FineTuningSettings::default()
    };
    assert_error_contains(models::Pretrained::open(&tail), &["head, all"]);
    let none = RunConfig {
        adapter_rank: Some(4),
        ..RunConfig::default()
    };
    assert_error_contains(
        trainer::pretrained::open(&none),
        &["adapter_rank", "--from"],
    );
    let nowhere = RunConfig {
        from: Some("nowhere/at/all".into()),
        ..RunConfig::default()
    };
    assert_error_contains(
        trainer::pretrained::open(&nowhere),
        &["no such folder", "config.json"],
    );
}

#[test]
fn a_scaling_of_adapters_needs_adapters() {
    for scaling in [AdapterScaling::Standard, AdapterScaling::RankStabilized] {
        let without_adapters = RunConfig {
            from: Some(fixture("vit")),
            adapter_scaling: Some(scaling),
            ..RunConfig::default()
        };
        assert_error_contains(
            trainer::pretrained::open(&without_adapters),
            &["adapter_scaling", "needs adapters", "--adapter RANK"],
        );
        let without_weights = RunConfig {
            from: None,
            ..without_adapters
        };
        assert_error_contains(
            trainer::pretrained::open(&without_weights),
            &["adapter_scaling", "--from"],
        );
    }
}

#[test]
fn problems_of_a_folder_are_reported_before_training() {
    let copy = copied("vit");
    std::fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    std::fs::write(copy.path().join("pytorch_model.bin"), b"\x80\x02}").unwrap();
    let way = vit(None, None, None);
    assert_error_contains(
        trainer::pretrained::open(&way.config(copy.path())),
        &["pytorch_model.bin", "pickled"],
    );
    let copy = copied("vit");
    std::fs::copy(
        fixture("dinov2").join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();
    let plan = way.plan_from(copy.path(), DType::F32);
    let refused = TrainState::new(&plan, &Device::Cpu);
    assert_error_contains(refused, &["is missing", "is not known", "layer_scale1"]);
}

#[test]
fn the_kind_and_the_dropout_of_adapters_need_adapters() {
    for (without, key) in [
        (
            RunConfig {
                adapter_dropout: Some(0.1),
                ..RunConfig::default()
            },
            "adapter_dropout",
        ),
        (
            RunConfig {
                adapter_kind: Some(runlog::AdapterKind::Dora),
                ..RunConfig::default()
            },
            "adapter_kind",
        ),
    ] {
        let without = RunConfig {
            from: Some(fixture("vit")),
            ..without
        };
        assert_error_contains(
            trainer::pretrained::open(&without),
            &[key, "needs adapters"],
        );
    }
}
