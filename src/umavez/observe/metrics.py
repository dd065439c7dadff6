"""Metrics for Prometheus. Needs umavez[metrics].

    Once(url, scope="shop", observers=[Metrics()])      # what happens: counted in this process
    StoreMetrics(once.store, url=url)                   # what stands in the store: asked when scraped
    Relay(…, observers=[MessageMetrics()])              # messages; a Consumer takes it too

`scraped` is the text for a server that answers /metrics itself, also one of several processes; `serve_metrics` answers
for a process that is no server.
"""

from umavez.errors import needs

with needs(__name__, "umavez[metrics]"):
    from umavez.observe.counting import Metrics
    from umavez.observe.messages import MessageMetrics
    from umavez.observe.scraping import scraped
    from umavez.observe.serving import serve_metrics
    from umavez.observe.standing import StoreMetrics

__all__ = ["MessageMetrics", "Metrics", "StoreMetrics", "scraped", "serve_metrics"]
