//! Which addresses an activity may connect to: public unicast ones, and what the worker's owner allows.
//!
//! Invariant: a name is resolved once, and the connection goes to an address that was checked; one forbidden address
//! among several refuses the name, since which one is taken is the network's choice. Addresses that carry another one
//! (mapped, 6to4, NAT64) are as good as the one they carry.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::HttpConfig;

/// A target that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::capability) struct RefusedAddress {
    pub(in crate::capability) host: String,
    pub(in crate::capability) address: IpAddr,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RefusedAddress { host, address } = self;
        write!(
            f,
            "{host} is at {address}, which is not a public address; add the host to `http.allow_hosts` to permit it"
        )
    }
}

impl std::error::Error for RefusedAddress {}

/// Whether an address is on the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let refused = match address.octets() {
        [0 | 10 | 127, ..] => true,                     // this network, private, loopback
        [100, b, ..] => (64..128).contains(&b),         // carrier-grade NAT
        [169, 254, ..] => true,                         // link-local, metadata services
        [168, 63, 129, 16] => true,                     // metadata service of Azure
        [172, b, ..] => (16..32).contains(&b),          // private
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,  // special, documentation, 6to4 relays
        [192, 168, ..] => true,                         // private
        [198, 18 | 19, ..] | [198, 51, 100, _] => true, // benchmarks, documentation
        [203, 0, 113, _] => true,                       // documentation
        [224..=255, ..] => true,                        // multicast, reserved, broadcast
        _ => false,
    };
    !refused
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let carried = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] => carried(high, low), // IPv4-mapped
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low), // NAT64
        [0x2002, high, low, ..] => carried(high, low),            // 6to4
        [0x2001, 0..0x200, ..] => false,                          // Teredo, ORCHID and other special uses
        [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,   // documentation
        [first, ..] => first & 0xe000 == 0x2000,                  // global unicast is 2000::/3 and nothing else
    }
}

impl HttpConfig {
    fn allows_host(&self, host: &str) -> bool {
        self.allow_private || self.allow_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// For a host that is an address itself; a name is checked where it is resolved.
    pub(in crate::capability) fn check_literal(&self, host: &str) -> Result<(), RefusedAddress> {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => self.check(host, address),
            Err(_) => Ok(()),
        }
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), RefusedAddress> {
        if is_public(address) || self.allows_host(host) {
            Ok(())
        } else {
            Err(RefusedAddress { host: host.to_owned(), address })
        }
    }
}

/// Resolves names for the client and lets no forbidden address through.
pub(super) struct GuardedResolver(pub(super) Arc<HttpConfig>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let config = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let addresses: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            for address in &addresses {
                config.check(host, address.ip())?;
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G36: the forms in which a forbidden address hides, as the url crate and the standard library read them.
    const REFUSED: [&str; 52] = [
        "127.0.0.1",
        "127.1",
        "127.255.255.254",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "169.254.169.254",
        "169.254.0.1",
        "2852039166",
        "0xa9fea9fe",
        "168.63.129.16",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "3232235521",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[64:ff9b::10.0.0.1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::1]",
        "[2001::1]",
        "[2001:db8::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[100::1]",
        "[3fff::1]",
    ];
    const PUBLIC: [&str; 10] = [
        "8.8.8.8",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "134744072",
        "[2606:4700::1111]",
        "[64:ff9b::8.8.8.8]",
    ];

    fn check(host: &str) -> Result<(), RefusedAddress> {
        let url = reqwest::Url::parse(&format!("http://{host}/")).unwrap();
        HttpConfig::default().check_literal(url.host_str().unwrap())
    }

    /// G36: 52 vectors, decimal, octal, hexadecimal and short forms included.
    #[test]
    fn forbidden_addresses_are_refused_in_every_spelling() {
        for host in REFUSED {
            assert!(check(host).is_err(), "{host} was let through");
        }
        for host in PUBLIC {
            assert_eq!(check(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_listed_host_may_be_reached_and_no_other() {
        let config = HttpConfig { allow_hosts: vec!["127.0.0.1".into()], ..Default::default() };
        assert!(config.check_literal("127.0.0.1").is_ok());
        assert!(config.check_literal("127.0.0.2").is_err());
        let config = HttpConfig { allow_private: true, ..Default::default() };
        assert!(config.check_literal("127.0.0.2").is_ok());
    }
}
