"""A certificate authority, server certificates and node keys, made on the spot."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A CA: `certificate` is its PEM file."""

    def __init__(self, folder, name="test CA"):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        ca = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        built = self._builder(self._name, self._key.public_key())
        built = built.add_extension(ca, critical=True).add_extension(usage, critical=True)
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, label, hosts=("localhost", "127.0.0.1"), *, age=0, valid=30):
        """A server's certificate and key for these hosts, `age` days old and good for `valid` more."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        built = self._builder(_name(label), key.public_key(), age=age, valid=valid).add_extension(names, critical=False)
        certificate, secret = self.folder / f"{label}.pem", self.folder / f"{label}.key"
        certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        _write_secret(secret, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, secret

    def _builder(self, subject, public_key, *, age=0, valid=30):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - (age + 1) * _DAY)
            .not_valid_after(now + valid * _DAY)
        )


def node_key(folder, label):
    """A node's key in OpenSSH form and its public half beside it, as ssh-keygen makes them; returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    secret, public = folder / label, folder / f"{label}.pub"
    _write_secret(secret, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" " + label.encode())
    return secret, public


def _write_secret(path, content):
    path.write_bytes(content)
    path.chmod(0o600)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text):
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
