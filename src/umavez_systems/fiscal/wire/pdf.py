"""DANFE, DANFC-e and DANFSe as PDF, by an optional extra: pip install 'umavez[fiscal-pdf]'."""

from __future__ import annotations

from umavez_systems.problems import Problem


def danfe(xml: bytes, modelo: str, *, cancelada: bool = False) -> bytes:
    """The printed form of a note; one that was cancelled says so across the page.

    Raises a 501 problem where the extra is not installed, 404 where there is none.
    """
    if modelo == "NFSE_SP":
        detail = "A NFS-e de São Paulo é impressa no site da prefeitura; aqui há o XML."
        raise Problem(404, "sem-pdf", "Sem PDF", detail)
    if modelo == "NFSE_ADN" and b"<infNFSe" not in xml:
        raise Problem(404, "sem-pdf", "Sem PDF", "A nota ainda não foi gerada; o PDF existe depois da autorização.")
    try:
        if modelo == "65":
            from brazilfiscalreport.danfce import Danfce as Form  # noqa: PLC0415  # an optional extra
            from brazilfiscalreport.danfce import DanfceConfig as Config  # noqa: PLC0415  # the same
        elif modelo == "NFSE_ADN":
            from brazilfiscalreport.danfse import Danfse as Form  # noqa: PLC0415  # the same
            from brazilfiscalreport.danfse import DanfseConfig as Config  # noqa: PLC0415  # the same
        else:
            from brazilfiscalreport.danfe import Danfe as Form  # noqa: PLC0415  # the same
            from brazilfiscalreport.danfe import DanfeConfig as Config  # noqa: PLC0415  # the same
    except ImportError:
        detail = "Para o PDF, instale o extra: pip install 'umavez[fiscal-pdf]'."
        raise Problem(501, "pdf-indisponivel", "PDF indisponível", detail) from None
    return bytes(Form(xml=xml.decode(), config=Config(watermark_cancelled=cancelada)).output())
