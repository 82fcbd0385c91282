//! A cluster behind TLS that asks for certificates: found by variables, by a profile of `temporal.toml`, with an API key.
//!
//! Invariant: the dev server has no TLS; a proxy on loopback (`tls_proxy.py`) ends it in front of the server, and lets in only who
//! shows a certificate of the authority that the scene has made. Keys are in files of the scene alone.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] =
    &[("a_cluster_behind_tls_takes_who_shows_a_certificate", behind_tls), ("a_profile_says_all_of_it", by_a_profile)];

/// Of letters whose codes in HTTP/2 are all of five bits, so that its bytes in a packed header are known.
const API_KEY: &str = "sic0it2estate1coast0ease";

struct Proxy {
    child: Child,
    address: String,
    said: Arc<Mutex<Vec<String>>>,
    folder: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    fn start(cluster: &Cluster, name: &str) -> Proxy {
        let folder = cluster.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        certificates(&folder);
        let script = folder.join("tls_proxy.py");
        std::fs::write(&script, include_str!("tls_proxy.py")).unwrap();
        let port = cluster.address.rsplit_once(':').unwrap().1;
        let mut command = Command::new("python3");
        command.arg(&script).args(["ca.pem", "server.pem", "server.key", port, &packed(API_KEY)]);
        let mut child = command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("the proxy says its port").unwrap();
        let address = format!("127.0.0.1:{}", first.strip_prefix("port ").unwrap());
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
        Proxy { child, address, said, folder }
    }
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
    fn has_said(&self, line: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said == line)
    }
}

/// Two authorities, and certificates of the first for the server and for a client.
fn certificates(folder: &Path) {
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).current_dir(folder).output().expect("openssl is there");
        assert!(output.status.success(), "{args:?}: {}", shown(&output));
    };
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    for (authority, name) in [("ca", "/CN=boats authority"), ("other", "/CN=another authority")] {
        let (key, file) = (format!("{authority}.key"), format!("{authority}.pem"));
        openssl(&[&["req", "-x509"][..], &new_key, &["-subj", name, "-keyout", &key, "-out", &file]].concat());
    }
    let extensions = "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n";
    std::fs::write(folder.join("extensions"), extensions).unwrap();
    for (who, name, authority) in
        [("server", "/CN=server", "ca"), ("client", "/CN=boats", "ca"), ("stranger", "/CN=stranger", "other")]
    {
        let (key, request, file) = (format!("{who}.key"), format!("{who}.csr"), format!("{who}.pem"));
        let (ca, ca_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        openssl(&[&["req"][..], &new_key[..5], &["-subj", name, "-keyout", &key, "-out", &request]].concat());
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
            "-out",
            &file,
        ]);
    }
}

/// The bytes of the key in a header that HTTP/2 has packed, as hexadecimal digits: `Bearer ` before it fills whole bytes.
fn packed(key: &str) -> String {
    let code = |letter: char| "012aceiost".find(letter).expect("a letter of five bits");
    let bits: String = key.chars().map(|letter| format!("{:05b}", code(letter))).collect();
    let whole = bits.as_bytes().chunks_exact(8).map(|byte| std::str::from_utf8(byte).unwrap());
    whole.map(|byte| format!("{:02x}", u8::from_str_radix(byte, 2).unwrap())).collect()
}

fn behind_tls(cluster: &Cluster) {
    let proxy = Proxy::start(cluster, "tls");
    let (ca, cert, key) = (proxy.file("ca.pem"), proxy.file("client.pem"), proxy.file("client.key"));
    let shows = |cert: &str, key: &str, ca: &str| {
        let (cert, key) = (proxy.file(cert), proxy.file(key));
        let environment = [
            ("TEMPORAL_TLS_SERVER_CA_CERT_PATH", proxy.file(ca)),
            ("TEMPORAL_TLS_CLIENT_CERT_PATH", cert),
            ("TEMPORAL_TLS_CLIENT_KEY_PATH", key),
        ];
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        cluster.run_by(&environment, &["list", "--temporal", &proxy.address, "-o", "json"])
    };
    let taken = shows("client.pem", "client.key", "ca.pem");
    assert!(taken.status.success(), "{}", shown(&taken));
    assert!(proxy.has_said("client boats"));
    for (cert, key, ca) in [("stranger.pem", "stranger.key", "ca.pem"), ("client.pem", "client.key", "other.pem")] {
        let refused = shows(cert, key, ca);
        assert!(!refused.status.success(), "{cert} {ca}: {}", shown(&refused));
        assert!(shown(&refused).contains("no Temporal cluster answers"), "{}", shown(&refused));
    }
    let nothing = [("TEMPORAL_TLS_SERVER_CA_CERT_PATH", ca.as_str())];
    let refused = cluster.run_by(&nothing, &["list", "--temporal", &proxy.address]);
    assert!(!refused.status.success(), "without a certificate: {}", shown(&refused));
    assert!(!proxy.has_said("client stranger"));
    // A worker serves its queue through it, from the data of the variables instead of files.
    let text = |file: &str| std::fs::read_to_string(file).unwrap();
    let (ca, cert, key) = (text(&ca), text(&cert), text(&key));
    let environment = [
        ("TEMPORAL_TLS_SERVER_CA_CERT_DATA", ca.as_str()),
        ("TEMPORAL_TLS_CLIENT_CERT_DATA", cert.as_str()),
        ("TEMPORAL_TLS_CLIENT_KEY_DATA", key.as_str()),
    ];
    let queue = cluster.name("tls");
    let worker = cluster.worker_found_by(&environment, &queue, &proxy.address);
    let echo = json!({ "activity": { "type": "echo", "input": "over tls", "as": "said" } });
    cluster.start_program(&queue, "over-tls", &json!({ "steps": [echo, { "return": "$said" }] }));
    let (exit, result) = cluster.result("over-tls");
    assert_eq!((exit, &result["result"]), (0, &json!("over tls")), "{result}");
    assert!(!worker.log().contains("PRIVATE KEY"), "{}", worker.log());
    assert_eq!(worker.term(), 0);
}

fn by_a_profile(cluster: &Cluster) {
    let proxy = Proxy::start(cluster, "profile");
    let file = proxy.file("temporal.toml");
    let profile = format!(
        "[profile.boats]\naddress = {:?}\nnamespace = \"default\"\n[profile.boats.tls]\nserver_ca_cert_path = {:?}\nclient_cert_path = {:?}\nclient_key_path = {:?}\n",
        proxy.address,
        proxy.file("ca.pem"),
        proxy.file("client.pem"),
        proxy.file("client.key"),
    );
    std::fs::write(&file, profile).unwrap();
    std::fs::write(proxy.folder.join("api-key"), API_KEY).unwrap();
    let environment = [("TEMPORAL_CONFIG_FILE", file.as_str())];
    let found = cluster.run_by(&environment, &["list", "--temporal", "env:boats", "-o", "json"]);
    assert!(found.status.success(), "{}", shown(&found));
    let unknown = cluster.run_by(&environment, &["list", "--temporal", "env:ships"]);
    assert!(!unknown.status.success() && shown(&unknown).contains("ships"), "{}", shown(&unknown));
    let named = [environment[0], ("TEMPORAL_PROFILE", "boats")];
    let found = cluster.run_by(&named, &["list", "--temporal", "env"]);
    assert!(found.status.success(), "{}", shown(&found));
    assert!(!proxy.has_said("key"), "no key was given yet");
    // A key in a file, from a command, and in a variable: it arrives, and no output holds it.
    let in_file = format!("file:{}", proxy.file("api-key"));
    let by_command = format!("cmd:cat {}", proxy.file("api-key"));
    for (reference, environment) in [
        (in_file.as_str(), vec![environment[0]]),
        (by_command.as_str(), vec![environment[0]]),
        ("env:BOATS_KEY", vec![environment[0], ("BOATS_KEY", API_KEY)]),
    ] {
        proxy.said.lock().unwrap().clear();
        let found = cluster.run_by(&environment, &["list", "--temporal", "env:boats", "--temporal-api-key", reference]);
        assert!(found.status.success(), "{reference}: {}", shown(&found));
        assert!(!shown(&found).contains(API_KEY));
        cluster.until("the key arrives", || proxy.has_said("key").then_some(()));
    }
    let plain = [environment[0], ("TEMPORAL_API_KEY", API_KEY)];
    proxy.said.lock().unwrap().clear();
    assert!(cluster.run_by(&plain, &["list", "--temporal", "env:boats"]).status.success());
    cluster.until("the key arrives", || proxy.has_said("key").then_some(()));
    let nowhere = ["list", "--temporal", "env:boats", "--temporal-api-key", "file:/nowhere/key"];
    let refused = cluster.run_by(&environment, &nowhere);
    assert!(!refused.status.success() && shown(&refused).contains("/nowhere/key"), "{}", shown(&refused));
}
