//! The report of `ebb doctor` as a page to read and to attach: one HTML file that loads nothing and
//! runs nothing.

use super::super::failure::Failure;
use super::report::{DoctorReport, GpuReport, KernelReport};
use runlog::{format_bytes, format_io_error};
use std::path::Path;

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem}\
th,td{text-align:left;padding:.15rem .75rem .15rem 0;border-bottom:1px solid #8884;vertical-align:top}\
td.number{text-align:right;font-variant-numeric:tabular-nums}\
tr.failed{font-weight:600}";

/// Refuses a path at which no new file can be made, before the check begins.
pub fn expect_new(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!(
            "{} exists already; choose another file for --page",
            path.display()
        )));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => Err(Failure::usage(format!(
            "there is no folder {}; create it, or choose another file for --page",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Writes the page. A file that appeared since [`expect_new`] is not replaced.
pub fn write(report: &DoctorReport, path: &Path) -> Result<(), Failure> {
    expect_new(path)?;
    disk::write_atomic(path, html(report).as_bytes()).map_err(|error| {
        Failure::new(format!(
            "{} cannot be written: {}; choose another file for --page",
            path.display(),
            format_io_error(&error)
        ))
    })
}

fn html(report: &DoctorReport) -> String {
    let title = format!("ebb doctor on {}", report.machine.name());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        title = escaped(&title)
    );
    page += &machine(report);
    page += "<h2>What Ebb does not use here</h2>\n";
    if report.fell_back.is_empty() {
        page += "<p>Nothing: every operation gave the right result.</p>\n";
    } else {
        let items = report.fell_back.iter();
        let items: String = items
            .map(|sentence| format!("<li>{}</li>\n", escaped(sentence)))
            .collect();
        page += &format!("<ul>\n{items}</ul>\n");
    }
    page += &kernels(report);
    page += &findings(report);
    page + "</body>\n</html>\n"
}

fn machine(report: &DoctorReport) -> String {
    let machine = &report.machine;
    let mut rows = vec![
        ("Ebb", machine.version.to_owned()),
        ("Machine", machine.model.clone()),
        ("Chip", machine.chip.clone()),
        (
            "System",
            format!("{} ({})", machine.system, machine.architecture),
        ),
        ("CPU threads", machine.cpu_threads.to_string()),
        (
            "Memory",
            format!(
                "{} of {} available",
                format_bytes(machine.available_bytes),
                format_bytes(machine.total_bytes)
            ),
        ),
        ("MPI", machine.mpi.clone()),
        ("NCCL", machine.nccl.clone()),
        ("Device", format!("{} ({})", machine.device, machine.reason)),
    ];
    if let Some(GpuReport {
        name,
        family,
        limit_bytes,
    }) = &machine.gpu
    {
        rows.push(("GPU", name.clone()));
        rows.push(("GPU family", family.clone()));
        rows.push(("GPU memory limit", format_bytes(*limit_bytes)));
    }
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let rows: String = rows
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>\n", escaped(&value)))
        .collect();
    format!("<h2>Machine</h2>\n<table>\n{rows}</table>\n")
}

fn kernels(report: &DoctorReport) -> String {
    if report.kernels.is_empty() {
        return "<h2>Kernels</h2>\n<p>Ebb compiles kernels for GPUs only.</p>\n".to_owned();
    }
    let row = |kernel: &KernelReport| {
        let ms = kernel
            .ms
            .map_or_else(|| "not measured".to_owned(), |ms| format!("{ms:.3}"));
        format!(
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{ms}</td></tr>\n",
            escaped(&kernel.name),
            kernel.most_threads
        )
    };
    let rows: String = report.kernels.iter().map(row).collect();
    format!(
        "<h2>Kernels</h2>\n<p>Threads per group that the GPU allows, and the time of the widest launch during the check. The time includes the launch and the wait for the GPU, which even an empty kernel takes.</p>\n\
         <table>\n<tr><th>Kernel</th><th>Threads</th><th>Milliseconds</th></tr>\n{rows}</table>\n"
    )
}

fn findings(report: &DoctorReport) -> String {
    let row = |finding: &trainer::Finding| {
        format!(
            "<tr{}><td>{}</td><td>{}</td><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{:.1e}</td><td>{}</td><td class=\"number\">{:.1}</td></tr>\n",
            if finding.passed {
                ""
            } else {
                " class=\"failed\""
            },
            escaped(finding.precision),
            escaped(&finding.what),
            finding.micro_batch,
            if finding.passed { "passed" } else { "failed" },
            finding.difference,
            escaped(&finding.detail),
            finding.ms
        )
    };
    // What failed comes first.
    let (failed, passed): (Vec<_>, Vec<_>) = report.findings.iter().partition(|f| !f.passed);
    let rows: String = failed.into_iter().chain(passed).map(row).collect();
    format!(
        "<h2>Comparisons with the CPU in f64</h2>\n<p>{} comparisons in {:.1} s.</p>\n<table>\n\
         <tr><th>Precision</th><th>Operation or model</th><th>Micro-batch</th><th>Result</th><th>Difference</th><th>Where</th><th>Milliseconds</th></tr>\n{rows}</table>\n",
        report.findings.len(),
        report.seconds
    )
}

/// Text as HTML shows it, also between quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::report::{MachineReport, MonitorCost};
    use super::*;
    use trainer::{DeviceCheck, Finding};

    fn finding(what: &str, passed: bool) -> Finding {
        Finding {
            precision: "bf16",
            what: what.to_owned(),
            micro_batch: 3,
            difference: 0.5,
            detail: "output 0".to_owned(),
            passed,
            ms: 1.0,
        }
    }

    fn check() -> DeviceCheck {
        let check = serde_json::json!({
            "version": "0.1.0", "system": "Version 15.1", "device": "metal", "operations": 2,
            "failed": null, "failed_halves": { "bf16": "conv <2d> at micro-batch 3" },
        });
        serde_json::from_value(check).expect("it is a check")
    }

    fn report() -> DoctorReport {
        let machine = MachineReport {
            version: "0.1.0",
            model: "Mac16,5".to_owned(),
            chip: "Apple M4 Max".to_owned(),
            system: "macOS 15.1 (Build 24B83)".to_owned(),
            architecture: "aarch64",
            cpu_threads: 12,
            total_bytes: 64 << 30,
            available_bytes: 40 << 30,
            memory_source: "the kernel".to_owned(),
            monitor: MonitorCost {
                core_fraction: 0.0,
                readings_per_second: 20.0,
            },
            mpi: "mpirun of Open MPI 4, libmpi.so.40".to_owned(),
            nccl: "NCCL 2.28.3 (libnccl.so.2)".to_owned(),
            device: "metal",
            reason: "the Mac's own GPU, <Apple> & \"M4\"".to_owned(),
            gpu: Some(GpuReport {
                name: "applegpu_g16s".to_owned(),
                family: "Apple 9".to_owned(),
                limit_bytes: 48 << 30,
            }),
        };
        let cpu = trainer::select_device(trainer::DevicePreference::Cpu).expect("there is a CPU");
        let findings = vec![finding("linear", true), finding("conv <2d>", false)];
        let took = std::time::Duration::from_secs(9);
        let mut report = DoctorReport::new(machine, &cpu, check(), findings, took);
        for (name, most_threads, ms) in [
            ("layer_norm_f32", 1024, Some(0.25)),
            ("attention_bf16", 448, None),
        ] {
            report.kernels.push(KernelReport {
                name: name.to_owned(),
                most_threads,
                ms,
            });
        }
        report
    }

    #[test]
    fn the_page_shows_machine_kernels_and_what_failed() {
        let page = html(&report());
        for part in [
            "<title>ebb doctor on Mac16,5, Apple M4 Max, macOS 15.1 (Build 24B83)</title>",
            "<th>GPU</th><td>applegpu_g16s</td>",
            "<th>GPU family</th><td>Apple 9</td>",
            "<th>GPU memory limit</th><td>48.0 GB</td>",
            "the Mac&#39;s own GPU, &lt;Apple&gt; &amp; &quot;M4&quot;",
            "<td>layer_norm_f32</td><td class=\"number\">1024</td><td class=\"number\">0.250</td>",
            "<td>attention_bf16</td><td class=\"number\">448</td><td class=\"number\">not measured</td>",
            "Ebb does not compute in bf16 on metal on this machine, because conv &lt;2d&gt;",
        ] {
            assert!(page.contains(part), "{part} is missing: {page}");
        }
        let (failed, passed) = (page.find("class=\"failed\""), page.find("<td>linear</td>"));
        assert!(failed.is_some() && failed < passed, "what failed is first");
        for loads in ["<script", "http:", "https:", "src=", "url("] {
            assert!(!page.contains(loads), "the page loads something: {loads}");
        }
    }

    #[test]
    fn json_has_the_same_facts() {
        let json = serde_json::to_value(report()).expect("plain values");
        assert_eq!(json["gpu"]["family"], "Apple 9");
        assert_eq!(json["gpu"]["limit_bytes"], 48u64 << 30);
        assert_eq!(json["model"], "Mac16,5");
        assert_eq!(json["kernels"][0]["ms"], 0.25);
        assert_eq!(json["kernels"][1]["most_threads"], 448);
        assert_eq!(json["fell_back"].as_array().map(Vec::len), Some(1));
    }
}
