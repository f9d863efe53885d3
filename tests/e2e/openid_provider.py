"""A third-party OpenID provider on loopback: `python openid_provider.py PORT CERTIFICATE`, until it is stopped. Each
start creates a new key.
"""

import logging
import sys
import warnings

from werkzeug.serving import make_server

warnings.simplefilter("ignore")  # warnings of libraries about one another

if __name__ == "__main__":
    from oidc_provider_mock import app

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    port, certificate = sys.argv[1:]
    server = make_server("127.0.0.1", int(port), app(), threaded=True, ssl_context=(certificate, certificate))
    print("ready", flush=True)
    server.serve_forever()
