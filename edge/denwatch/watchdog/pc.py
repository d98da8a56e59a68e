"""What only CPython needs, on a Pi or a PC: TLS by its `ssl`. Not installed on boards."""

import ssl


def make_context(authority: bytes) -> ssl.SSLContext:
    """Return a TLS context that trusts one certificate authority (DER or PEM) and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # requires a certificate by default
    is_text = authority.startswith(b"-----")
    context.load_verify_locations(cadata=authority.decode() if is_text else authority)
    return context
