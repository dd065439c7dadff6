"""The systems' words: every refusal of the HTTP contract in Portuguese, in one catalogue."""

from __future__ import annotations

from umavez.http import Catalogue, Kind, problems

TYPES = "https://umavez.dev/problemas/"

WORDS = {
    problems.KEY_MISSING: Kind(
        "chave-ausente",
        400,
        "Falta a chave de idempotência",
        "Envie a chave no cabeçalho Idempotency-Key: um valor novo, como um UUID, para cada operação.",
    ),
    problems.KEY_INVALID: Kind(
        "chave-invalida",
        400,
        "Chave de idempotência inválida",
        "A chave tem de 1 a 255 caracteres ASCII visíveis, sem espaços, entre aspas ou não.",
    ),
    problems.KEY_REPEATED: Kind(
        "chave-invalida",
        400,
        "Chave de idempotência inválida",
        "Envie uma só chave, em um só cabeçalho Idempotency-Key.",
    ),
    problems.KEY_REUSED: Kind(
        "chave-reutilizada",
        422,
        "Chave de idempotência já usada",
        "Esta chave foi usada antes com outro conteúdo; repita o conteúdo original ou use uma chave nova.",
    ),
    problems.IN_PROGRESS: Kind(
        "em-andamento",
        409,
        "Operação em andamento",
        "Outra requisição com esta chave está em andamento; tente de novo em instantes.",
        True,
    ),
    problems.OVERTAKEN: Kind(
        "superada",
        409,
        "Outra tentativa assumiu esta chave",
        "Esta tentativa demorou demais; repita a requisição para receber o resultado registrado.",
        True,
    ),
    problems.OUTCOME_UNKNOWN: Kind(
        "resultado-desconhecido",
        409,
        "Resultado desconhecido",
        "Uma tentativa anterior terminou sem resposta e pode ter tido efeito; nada se repete até que isso se resolva.",
    ),
    problems.EXHAUSTED: Kind(
        "tentativas-esgotadas",
        409,
        "Tentativas esgotadas",
        "Nenhuma outra tentativa será feita com esta chave; peça ajuda ou use uma chave nova.",
    ),
    problems.NOT_KEPT: Kind(
        "resposta-nao-guardada",
        410,
        "A resposta não foi guardada",
        "A operação aconteceu e não se repete, mas sua resposta era grande demais para ser guardada.",
    ),
    problems.BODY_TOO_LARGE: Kind(
        "corpo-grande", 413, "Corpo grande demais", "O corpo é maior do que este endereço aceita."
    ),
    problems.BODY_INCOMPLETE: Kind(
        "interrompida",
        400,
        "Requisição interrompida",
        "O corpo não chegou inteiro; nada foi feito. Envie a requisição de novo.",
        True,
    ),
    problems.TOO_MANY: Kind(
        "requisicoes-demais",
        429,
        "Requisições demais ao mesmo tempo",
        "Espere o fim de algumas das requisições em andamento e envie esta de novo.",
        True,
    ),
    problems.OVERLOADED: Kind(
        "sobrecarga",
        503,
        "Servidor ocupado",
        "Há requisições demais à espera; nada foi feito. Tente de novo em instantes.",
        True,
    ),
    problems.STORE_UNAVAILABLE: Kind(
        "indisponivel", 503, "Banco de dados indisponível", "Tente de novo em instantes.", True
    ),
    problems.TABLES_MISSING: Kind(
        "tabelas-ausentes",
        503,
        "Tabelas ausentes",
        "Faltam tabelas ou são antigas; `umavez migrate` as cria. Repetir não resolve.",
    ),
    problems.OUTCOME_UNREADABLE: Kind(
        "resultado-ilegivel",
        503,
        "O resultado não pode ser lido aqui",
        "A operação aconteceu e não se repete, mas este servidor não consegue ler o que foi guardado.",
    ),
    problems.UNAUTHENTICATED: Kind(
        "nao-autenticado", 401, "Não autenticado", "Envie Authorization: Bearer <chave de API>."
    ),
    problems.NOT_ASKABLE: Kind(
        "consulta-incompleta",
        400,
        "Consulta incompleta",
        "Envie o cabeçalho Idempotency-Key e os parâmetros method e path da requisição original.",
    ),
}
CATALOGUE = Catalogue(TYPES, WORDS)
