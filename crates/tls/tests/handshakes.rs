//! Handshakes in memory: which are accepted, which are refused, and the messages.

use hinterland_tls::{
    ClientConnection, ClientCredentials, CredentialError, Look, NodeCredentials, ServerConnection, Sources, explain,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A CA, and a directory for what it signs.
struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, directory.path().display().to_string());
        let key = KeyPair::generate().unwrap();
        std::fs::write(directory.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Certificate and key of somebody called `name`.
    fn sign(&self, name: &str, expired: bool) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = match name.parse() {
            Ok(address) => vec![SanType::IpAddress(address)],
            Err(_) => vec![SanType::DnsName(name.try_into().unwrap())],
        };
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (own, secret) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&own, certificate.pem()).unwrap();
        write_secret(&secret, key.serialize_pem().as_bytes());
        (own, secret)
    }

    /// What somebody names who trusts this CA.
    fn sources(&self, own: (PathBuf, PathBuf)) -> Sources {
        Sources::Certificates { own, ca: self.path("ca.pem") }
    }
}

fn write_secret(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn shared(directory: &Path, byte: u8) -> Sources {
    let path = directory.join(format!("shared-{byte}"));
    write_secret(&path, &[byte; 32]);
    Sources::SharedKey(path)
}

/// What each side says in the end: nothing is wrong, or what.
fn shake(client: &Sources, node: &Sources, name: &str) -> (Result<(), String>, Result<(), String>) {
    let client = ClientCredentials::read(client).unwrap().begin(name).unwrap();
    converse(client, NodeCredentials::read(node, None).unwrap().now().begin().unwrap())
}

fn converse(mut client: ClientConnection, mut node: ServerConnection) -> (Result<(), String>, Result<(), String>) {
    let (mut said_by_client, mut said_by_node) = (Ok(()), Ok(()));
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        said_by_node = said_by_node.and(taken_by_node(&mut node, &wire));
        let mut wire = Vec::new();
        while node.wants_write() {
            node.write_tls(&mut wire).unwrap();
        }
        said_by_client = said_by_client.and(taken_by_client(&mut client, &wire));
    }
    if said_by_client.is_ok() && said_by_node.is_ok() {
        assert!(!client.is_handshaking() && !node.is_handshaking());
        client.writer().write_all(b"a page").unwrap();
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        assert!(!wire.windows(6).any(|window| window == b"a page"));
        taken_by_node(&mut node, &wire).unwrap();
        let mut read = [0; 6];
        node.reader().read_exact(&mut read).unwrap();
        assert_eq!(&read, b"a page");
    }
    (said_by_client, said_by_node)
}

fn taken_by_node(node: &mut ServerConnection, mut wire: &[u8]) -> Result<(), String> {
    while !wire.is_empty() {
        node.read_tls(&mut wire).unwrap();
        node.process_new_packets().map_err(|error| explain(&error))?;
    }
    Ok(())
}

fn taken_by_client(client: &mut ClientConnection, mut wire: &[u8]) -> Result<(), String> {
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        client.process_new_packets().map_err(|error| explain(&error))?;
    }
    Ok(())
}

#[track_caller]
fn expect(said: &Result<(), String>, words: &str) {
    assert!(said.as_ref().is_err_and(|said| said.contains(words)), "'{words}' is not in {said:?}");
}

#[test]
fn certificates_of_the_right_ca_get_through() {
    let ca = Authority::new();
    let (node, client) = (ca.sources(ca.sign("node-1.example", false)), ca.sources(ca.sign("client", false)));
    assert_eq!(shake(&client, &node, "node-1.example"), (Ok(()), Ok(())));
    let node = ca.sources(ca.sign("192.0.2.7", false));
    assert_eq!(shake(&client, &node, "192.0.2.7"), (Ok(()), Ok(())));
}

#[test]
fn each_side_may_trust_another_ca() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let node = Sources::Certificates { own: ours.sign("localhost", false), ca: theirs.path("ca.pem") };
    let client = Sources::Certificates { own: theirs.sign("client", false), ca: ours.path("ca.pem") };
    assert_eq!(shake(&client, &node, "localhost"), (Ok(()), Ok(())));
}

#[test]
fn wrong_certificates_are_named_on_both_sides() {
    let (ca, other) = (Authority::new(), Authority::new());
    let (node, client) = (ca.sources(ca.sign("localhost", false)), ca.sources(ca.sign("client", false)));
    // A node of another CA; it hears of it.
    let stranger = Sources::Certificates { own: other.sign("localhost", false), ca: ca.path("ca.pem") };
    let (by_client, by_node) = shake(&client, &stranger, "localhost");
    expect(&by_client, "was not signed by the CA");
    expect(&by_node, "it does not accept our certificate: no CA");
    // A client of another CA.
    let stranger = Sources::Certificates { own: other.sign("client", false), ca: ca.path("ca.pem") };
    let (by_client, by_node) = shake(&stranger, &node, "localhost");
    expect(&by_client, "it does not accept our certificate: no CA");
    expect(&by_node, "was not signed by the CA");
    // Expired, on either side.
    let late = ca.sources(ca.sign("late", true));
    let (by_client, by_node) = shake(&client, &late, "late");
    expect(&by_client, "its certificate has expired");
    expect(&by_node, "it has expired");
    let (by_client, by_node) = shake(&late, &node, "localhost");
    expect(&by_client, "it has expired");
    expect(&by_node, "its certificate has expired");
    // Another name.
    let (by_client, by_node) = shake(&client, &node, "node-2.example");
    expect(&by_client, "for another name");
    expect(&by_node, "it does not accept our certificate");
}

#[test]
fn who_has_the_shared_key_gets_through_and_nobody_else() {
    let ca = Authority::new();
    let directory = ca.directory.path();
    let (key, other) = (shared(directory, 1), shared(directory, 2));
    assert_eq!(shake(&key, &key, "10.0.0.7"), (Ok(()), Ok(())));
    let (by_client, by_node) = shake(&other, &key, "10.0.0.7");
    expect(&by_client, "its key is not that of our --key-file");
    expect(&by_node, "its --key-file is another one");
    // Certificates on one side, a key on the other.
    let certificates = ca.sources(ca.sign("localhost", false));
    for (client, node) in [(&certificates, &key), (&key, &certificates)] {
        let (by_client, by_node) = shake(client, node, "localhost");
        assert!(by_client.is_err() && by_node.is_err());
        let said = format!("{by_client:?} {by_node:?}");
        assert!(
            said.contains("certificates are needed on both sides") || said.contains("certificates on both sides"),
            "{said}"
        );
    }
}

#[test]
fn what_is_not_tls_1_3_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let key = shared(directory.path(), 1);
    let begin = || NodeCredentials::read(&key, None).unwrap().now().begin().unwrap();
    expect(&taken_by_node(&mut begin(), &[b'H'; 100]), "is not TLS");
    // A hello of TLS 1.2: no extension that offers versions.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    expect(&taken_by_node(&mut begin(), &hello), "TLS 1.3 is needed");
    let mut client = ClientCredentials::read(&key).unwrap().begin("localhost").unwrap();
    expect(&taken_by_client(&mut client, b"HINTNODE and so on"), "is not TLS");
    let mut client = ClientCredentials::read(&key).unwrap().begin("localhost").unwrap();
    expect(&taken_by_client(&mut client, &[0x15, 3, 3, 0, 2, 2, 70]), "another version of TLS");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let ca = Authority::new();
    let own = ca.sign("localhost", false);
    let refused = |sources: &Sources| ClientCredentials::read(sources).unwrap_err().to_string();
    let short = ca.path("short");
    write_secret(&short, &[1; 31]);
    assert!(refused(&Sources::SharedKey(short.clone())).contains("31 bytes are too few for a key; make one with"));
    write_secret(&short, &[1; 32]);
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refused(&Sources::SharedKey(short.clone())).contains("others can read this secret; chmod 600"));
    assert!(refused(&Sources::SharedKey(ca.path("nothing"))).contains("No such file"));
    assert!(refused(&Sources::SharedKey(ca.path("."))).contains("no file"));
    let certificates = |own, ca| Sources::Certificates { own, ca };
    let swapped = (own.1.clone(), own.0.clone());
    assert!(refused(&certificates(swapped, ca.path("ca.pem"))).contains("there is no certificate here"));
    assert!(refused(&certificates(own.clone(), own.1.clone())).contains("there is no certificate here"));
    let other = ca.sign("other", false);
    let mixed = (own.0.clone(), other.1.clone());
    assert!(refused(&certificates(mixed, ca.path("ca.pem"))).starts_with(&other.1.display().to_string()));
}

#[test]
fn flags_must_fit_together() {
    let refused = |tls, ca, key| Sources::new(tls, ca, key).unwrap_err();
    assert!(matches!(Sources::new("", "", ""), Ok(None)));
    assert_eq!(Sources::new("", "", "k").unwrap(), Some(Sources::SharedKey("k".into())));
    let certificates = Sources::Certificates { own: ("c".into(), "k".into()), ca: "a".into() };
    assert_eq!(Sources::new("c,k", "a", "").unwrap(), Some(certificates));
    assert!(matches!(refused("c,k", "a", "k"), CredentialError::Both));
    assert!(matches!(refused("", "a", "k"), CredentialError::Both));
    assert!(matches!(refused("c,k", "", ""), CredentialError::Half));
    assert!(matches!(refused("", "a", ""), CredentialError::Half));
    assert!(matches!(refused("c", "a", ""), CredentialError::Pair(_)));
}

/// A certificate, its key and the CA are renewed one after the other: until all fit, both sides go on with the old ones.
#[test]
fn what_is_renewed_is_taken_whole_and_who_began_before_goes_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let (ca, node_own, own) = (old.path("ca.pem"), old.sign("localhost", false), old.sign("client", false));
    let sources = |own: &(PathBuf, PathBuf)| Sources::Certificates { own: own.clone(), ca: ca.clone() };
    let node = NodeCredentials::read(&sources(&node_own), None).unwrap();
    let client = ClientCredentials::read(&sources(&own)).unwrap();
    let gets_through = || converse(client.begin("localhost").unwrap(), node.now().begin().unwrap()) == (Ok(()), Ok(()));
    let begun = (client.begin("localhost").unwrap(), node.now().begin().unwrap());
    let renewed = [(&node_own, new.sign("localhost", false)), (&own, new.sign("client", false))];
    let refused = |path: &Path, words: &str| {
        for said in [node.again(), client.again()] {
            let Look::Refused(error) = said else { panic!("{said:?}") };
            let error = error.to_string();
            assert!(error.contains(words), "'{words}' is not in: {error}");
        }
        assert!(gets_through(), "{words}: {}", path.display());
    };
    let copy = |from: &Path, to: &Path| {
        std::fs::copy(from, to).unwrap();
    };
    for ((certificate, _), (fresh, _)) in &renewed {
        let pem = std::fs::read(fresh).unwrap();
        std::fs::write(certificate, &pem[..pem.len() / 2]).unwrap();
    }
    refused(&ca, "there is no certificate here");
    renewed.iter().for_each(|((certificate, _), (fresh, _))| copy(fresh, certificate));
    refused(&ca, "this is not the key of ");
    renewed.iter().for_each(|((_, key), _)| std::fs::write(key, "").unwrap());
    refused(&ca, "there is no private key here");
    renewed.iter().for_each(|((_, key), (_, fresh))| copy(fresh, key));
    std::fs::write(&ca, "").unwrap();
    refused(&ca, "there is no certificate here");
    copy(&new.path("ca.pem"), &ca);
    assert!(matches!(node.again(), Look::Taken));
    // The client still shows what the old CA has signed.
    assert!(!gets_through());
    assert!(matches!(client.again(), Look::Taken));
    assert!(gets_through());
    assert!(matches!((node.again(), client.again()), (Look::Same, Look::Same)));
    assert_eq!(converse(begun.0, begun.1), (Ok(()), Ok(())));
    let key = shared(new.directory.path(), 1);
    let (node, client) = (NodeCredentials::read(&key, None).unwrap(), ClientCredentials::read(&key).unwrap());
    let Sources::SharedKey(path) = &key else { panic!() };
    std::fs::write(path, [2; 32]).unwrap();
    assert!(matches!(node.again(), Look::Taken));
    let talk = || converse(client.begin("localhost").unwrap(), node.now().begin().unwrap());
    assert_ne!(talk(), (Ok(()), Ok(())));
    assert!(matches!(client.again(), Look::Taken));
    assert_eq!(talk(), (Ok(()), Ok(())));
}

#[test]
fn each_certificate_in_use_says_how_long_it_is_good() {
    let ca = Authority::new();
    let expired = ClientCredentials::read(&ca.sources(ca.sign("late", true))).unwrap().certificates();
    let [own, root] = &expired[..] else { panic!("{expired:?}") };
    assert_eq!(
        (own.is_ca, own.expires().as_str(), own.path == ca.path("late.pem")),
        (false, "2021-01-01T00:00:00Z", true)
    );
    assert_eq!(own.left_seconds(std::time::UNIX_EPOCH), own.until);
    assert!(root.is_ca && root.subject.contains(&ca.directory.path().display().to_string()), "{root:?}");
    let node = NodeCredentials::read(&ca.sources(ca.sign("localhost", false)), None).unwrap();
    assert_eq!(node.certificates().len(), 2);
    assert!(NodeCredentials::read(&shared(ca.directory.path(), 1), None).unwrap().certificates().is_empty());
}
