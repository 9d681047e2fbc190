//! What `deploy/` holds can be used as it is: every file parses, every configuration in it loads, and what names another
//! thing names one that is there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// The files with this ending, so many.
fn files(ending: &str, count: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![deploy()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == ending)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    assert_eq!(found.len(), count, "{found:?}");
    found
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

/// The documents of a YAML file, in which lists may have merge keys.
fn documents(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| {
            use serde::Deserialize;
            let mut value = serde_yaml_ng::Value::deserialize(document).unwrap();
            value.apply_merge().unwrap();
            serde_json::to_value(value).unwrap()
        })
        .collect()
}

fn kubernetes() -> Vec<Value> {
    let files = ["holdfast", "redis", "secret.example"];
    files
        .iter()
        .flat_map(|file| documents(&read(format!("kubernetes/{file}.yaml"))))
        .collect()
}

fn named<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it =
        |document: &&Value| document["kind"] == kind && document["metadata"]["name"] == name;
    let found = documents.iter().find(is_it);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// Loads a configuration with the real binary, a key in a file where it wants it.
fn loads(text: &str, variables: &[(&str, &str)]) -> toml::Table {
    let (checked, said) = checked(text, &STANDARD.encode([1; 32]), variables);
    assert!(checked, "{text}\n{said}");
    text.parse().unwrap()
}

/// Whether a configuration can be served with these keys, and what is said of it.
fn checked(text: &str, keys: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let table: toml::Table = text.parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, keys).unwrap();
    let wanted = table["keys_file"].as_str().unwrap();
    let config = folder.path().join("holdfast.toml");
    std::fs::write(&config, text.replace(wanted, file.to_str().unwrap())).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .arg("check-config")
        .arg(&config)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    (checked.status.success(), said)
}

#[test]
fn every_configuration_loads() {
    for path in files("toml", 2) {
        let text = read(&path);
        loads(&text, &[("HOSTNAME", "holdfast-1")]);
    }
    let documents = kubernetes();
    let config = named(&documents, "ConfigMap", "holdfast")["data"]["holdfast.toml"].as_str();
    let pod = [("POD_IP", "10.1.2.3")];
    loads(config.unwrap(), &pod);
    // A key that everybody can read here must not be one.
    let secret = &named(&documents, "Secret", "holdfast-keys")["stringData"]["keys"];
    let (is_loaded, said) = checked(config.unwrap(), secret.as_str().unwrap(), &pod);
    assert!(!is_loaded);
    assert!(said.contains("`keys_file`: line 1"), "{said}");
    assert!(said.contains("`holdfast keygen` prints"), "{said}");
}

/// Nor does one stand in any other file: 32 bytes of base64 in a line.
#[test]
fn no_file_holds_a_key() {
    let mut seen = 0;
    for (ending, count) in [
        ("toml", 2),
        ("yaml", 5),
        ("conf", 2),
        ("service", 1),
        ("md", 1),
    ] {
        for path in files(ending, count) {
            let text = read(&path);
            let words = text.split(|c: char| c.is_whitespace() || "\"'`,[]".contains(c));
            for word in words {
                let is_key = STANDARD.decode(word).is_ok_and(|bytes| bytes.len() == 32);
                assert!(!is_key, "{} holds {word}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 100);
}

#[test]
fn every_yaml_file_parses() {
    for path in files("yaml", 5) {
        let documents = documents(&read(&path));
        assert!(!documents.is_empty(), "{}", path.display());
        assert!(documents.iter().all(Value::is_object), "{}", path.display());
    }
}

#[test]
fn what_a_manifest_names_is_there() {
    let documents = kubernetes();
    let mut kinds = HashMap::<&str, usize>::new();
    for document in &documents {
        assert!(document["apiVersion"].is_string(), "{document}");
        *kinds.entry(document["kind"].as_str().unwrap()).or_default() += 1;
    }
    for (kind, count) in [
        ("ConfigMap", 1),
        ("Secret", 1),
        ("Deployment", 2),
        ("Service", 2),
        ("PodDisruptionBudget", 1),
        ("NetworkPolicy", 2),
    ] {
        assert_eq!(kinds.get(kind), Some(&count), "{kind}");
    }
    let deployment = named(&documents, "Deployment", "holdfast");
    let pod = &deployment["spec"]["template"];
    assert!(deployment["spec"]["replicas"].as_u64() >= Some(2));
    for volume in pod["spec"]["volumes"].as_array().unwrap() {
        if let Some(name) = volume["configMap"]["name"].as_str() {
            named(&documents, "ConfigMap", name);
        } else {
            named(
                &documents,
                "Secret",
                volume["secret"]["secretName"].as_str().unwrap(),
            );
        }
    }
    let container = &pod["spec"]["containers"][0];
    let ports: Vec<&str> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    for probe in ["readinessProbe", "livenessProbe"] {
        let port = container[probe]["httpGet"]["port"].as_str().unwrap();
        assert!(ports.contains(&port), "{probe}");
    }
    let service = named(&documents, "Service", "holdfast");
    assert!(ports.contains(&service["spec"]["ports"][0]["targetPort"].as_str().unwrap()));
    let labels = &pod["metadata"]["labels"];
    assert_eq!(&service["spec"]["selector"], labels);
    for (kind, at) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let name = if kind == "NetworkPolicy" {
            "holdfast-cluster"
        } else {
            "holdfast"
        };
        assert_eq!(
            named(&documents, kind, name).pointer(at),
            Some(labels),
            "{kind}"
        );
    }
}

/// Nobody is killed before its calls have had the time that they were promised.
#[test]
fn every_grace_period_is_longer_than_the_deadline() {
    const AFTERWARDS: u64 = 5;
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap();
    let deadline = |config: &toml::Table| {
        let timers = config.get("timers").and_then(toml::Value::as_table);
        let given = timers.and_then(|timers| timers.get("shutdown_deadline"));
        given.map_or(25, |span| seconds(span.as_str().unwrap()))
    };
    let documents_of = kubernetes();
    let config = &named(&documents_of, "ConfigMap", "holdfast")["data"]["holdfast.toml"];
    let config: toml::Table = config.as_str().unwrap().parse().unwrap();
    let pod = &named(&documents_of, "Deployment", "holdfast")["spec"]["template"]["spec"];
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let before = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
    let before: u64 = before[1].as_str().unwrap().parse().unwrap();
    assert!(grace >= before + deadline(&config) + AFTERWARDS);

    let compose = &documents(&read("compose/compose.yaml"))[0];
    let config: toml::Table = read("compose/holdfast.toml").parse().unwrap();
    for replica in ["holdfast-1", "holdfast-2"] {
        let service = &compose["services"][replica];
        let grace = seconds(service["stop_grace_period"].as_str().unwrap());
        assert!(grace >= deadline(&config) + AFTERWARDS, "{replica}");
        assert_eq!(service["hostname"], *replica);
        assert_eq!(service["secrets"][0], "holdfast_keys");
    }
    assert!(compose["secrets"]["holdfast_keys"]["file"].is_string());

    let unit = read("systemd/holdfast.service");
    let config: toml::Table = read("systemd/holdfast.toml").parse().unwrap();
    let value = |key: &str| {
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("the unit has no {key}"))
    };
    assert!(seconds(value("TimeoutStopSec")) >= deadline(&config) + AFTERWARDS);
    assert!(value("ExecStart").ends_with("serve --config /etc/holdfast/holdfast.toml"));
    let credential = value("LoadCredential").split(':').next().unwrap();
    let keys = config["keys_file"].as_str().unwrap();
    assert!(
        keys.ends_with(&format!("/holdfast.service/{credential}")),
        "{keys}"
    );
    for section in ["[Unit]", "[Service]", "[Install]"] {
        assert_eq!(unit.lines().filter(|line| *line == section).count(), 1);
    }
    let is_sound =
        |line: &&str| line.is_empty() || line.starts_with(['#', '[']) || line.contains('=');
    assert!(unit.lines().all(|line| is_sound(&line)));
}

/// What stands in front neither holds events back nor cuts a leg short, and repeats what was not started alone. nginx is
/// not asked here whether it understands the files: these are the values that matter.
#[test]
fn what_stands_in_front_lets_streams_pass() {
    for path in files("conf", 2) {
        let text = read(&path);
        let directives: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter(|line| !line.is_empty())
            .map(|line| line.split_whitespace().collect())
            .collect();
        let mut depth = 0_i32;
        for directive in &directives {
            let last = directive.last().unwrap();
            depth += i32::from(last.ends_with('{')) - i32::from(*last == "}");
            assert!(
                depth >= 0 && last.ends_with(['{', ';', '}']),
                "{directive:?}"
            );
        }
        assert_eq!(depth, 0, "{}", path.display());
        let says = |name: &str| {
            let found = directives.iter().find(|directive| directive[0] == name);
            found.unwrap_or_else(|| panic!("no {name}"))[1].trim_end_matches(';')
        };
        assert_eq!(says("proxy_buffering"), "off");
        assert_eq!(says("proxy_http_version"), "1.1");
        let timeout: u64 = says("proxy_read_timeout")
            .trim_end_matches('s')
            .parse()
            .unwrap();
        assert!(timeout > 300, "longer than upstream_silence_max");
        // A POST is repeated at nothing but 503, which holdfast answers when it has started nothing.
        let repeats: Vec<&[&str]> = directives
            .iter()
            .filter(|directive| directive[0] == "proxy_next_upstream")
            .map(|directive| &directive[1..])
            .collect();
        assert_eq!(
            repeats,
            [&["error", "timeout;"][..], &["http_503", "non_idempotent;"]]
        );
        assert_eq!(says("error_page"), "503");
    }
    let envoy = &documents(&read("envoy/envoy.yaml"))[0];
    let manager = &envoy["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let route = &manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
    assert_eq!(route["timeout"], "0s");
    let retry = &route["retry_policy"];
    let on = "connect-failure,refused-stream,retriable-status-codes";
    assert_eq!(retry["retry_on"], on);
    assert_eq!(retry["retriable_status_codes"], serde_json::json!([503]));
    assert_eq!(
        route["cluster"],
        envoy["static_resources"]["clusters"][0]["name"]
    );
}
